"""Debian's Prometheus scrapes three nodes over HTTPS with a token: requests, tokens, devices, links
and the log come back with the right figures; of a killed node `up` is 0, and the rule fires."""
import http.client
import json
import os
import pathlib
import shutil
import ssl
import subprocess
import time
import urllib.parse

from harness import API_PORT, PATIENCE, check, check_equal, chat_body, die_with_parent, run, wait

PROMETHEUS_PORT = 9090
N_REQUESTS, N_TOKENS = 5, 12
SOURCE = pathlib.Path(os.environ["MEDLEY_SOURCE"])
HEAT = {"power_idle": "5W", "power_max": "60W", "thermal_mass": "100J/K", "thermal_resistance": "0.5K/W",
        "limit": "90C"}


def https(node, ca, token, method, path, body=None):
    """(status, text) of a request from another machine, as a client of the cluster makes it."""
    context = ssl.create_default_context(cafile=str(ca))
    connection = http.client.HTTPSConnection(node.address, API_PORT, timeout=60 * PATIENCE,
                                             context=context)
    connection.sock = context.wrap_socket(node.connect(node.address), server_hostname=node.address)
    try:
        connection.request(method, path, json.dumps(body) if body else None,
                           {"Authorization": f"Bearer {token}"})
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def shows_metrics(node, ca, token):
    """Also that an admin has signed its certificate by now."""
    try:
        return https(node, ca, token, "GET", "/metrics")[0] == 200
    except OSError:
        return False


class Prometheus:
    """A server on the first node's machine, which is what most people would do."""

    def __init__(self, world, nodes, ca, token):
        self.node = nodes[0]
        folder = world.folder / "prometheus"
        folder.mkdir()
        (folder / "medley-token").write_text(token)
        shutil.copy(SOURCE / "contrib/prometheus/medley.rules.yml", folder)
        shutil.copy(ca, folder / "medley-ca.pem")
        example = (SOURCE / "contrib/prometheus/prometheus.yml").read_text()
        head, _ = example.split("      - targets:")
        text = head.replace("5s", "1s") + "      - targets:\n" + "".join(
            f"          - {node.address}:{API_PORT}\n" for node in nodes)
        (folder / "prometheus.yml").write_text(text)
        subprocess.run(["promtool", "check", "config", "prometheus.yml"], cwd=folder, check=True,
                       stdout=subprocess.DEVNULL)
        self.log = (folder / "log").open("w+")
        with self.node.network.inside():
            self.process = subprocess.Popen(
                ["prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data",
                 f"--web.listen-address=127.0.0.1:{PROMETHEUS_PORT}"],
                cwd=folder, stdout=self.log, stderr=self.log, preexec_fn=die_with_parent)

    def get(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", PROMETHEUS_PORT, timeout=30)
        try:
            connection.sock = self.node.connect(port=PROMETHEUS_PORT)
            connection.request("GET", path)
            return json.loads(connection.getresponse().read())["data"]
        finally:
            connection.close()

    def ask(self, expression):
        """[(labels, value)] of now."""
        found = self.get("/api/v1/query?" + urllib.parse.urlencode({"query": expression}))
        return [(sample["metric"], float(sample["value"][1])) for sample in found["result"]]

    def value(self, expression):
        """The only one, or None."""
        found = self.ask(expression)
        return found[0][1] if len(found) == 1 else None

    def alerts(self):
        return {(alert["labels"]["alertname"], alert["state"])
                for alert in self.get("/api/v1/alerts")["alerts"]}

    def answers(self):
        try:
            return self.get("/api/v1/status/runtimeinfo")
        except (OSError, ValueError):  # it has not begun, or says so
            return False

    def end(self):
        self.process.terminate()
        self.process.wait(30)


def promtool(text):
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True,
                          text=True)
    check_equal((done.returncode, done.stdout + done.stderr), (0, ""), "promtool check metrics")


def started(world):
    """Their APIs are open to other machines as soon as there is a token."""
    names = ("laptop", "tower", "mini")
    nodes = world.cluster(*names, **{name: ["--sim", world.sim(name, **HEAT)] for name in names})
    reader = nodes[0].medley("token", "create", "prometheus", "--scope", "read").out.strip()
    client = nodes[0].medley("token", "create", "client", "--scope", "read,generate").out.strip()
    for node in nodes:
        wait(f"{node.name} knows the tokens", (node.state / "tokens-made").exists)
    for node in nodes:
        node.end()
        node.start(*node.options, "--api", f"{node.address}:{API_PORT}")
    for node in nodes:
        node.wait_until({name: "up" for name in names}, 30)
    return nodes, reader, client


def check_record(node, ca, token):
    status, text = https(node, ca, token, "GET", "/api/requests")
    check_equal(status, 200, text)
    check("duck" not in text, "a record has the prompt")
    record = json.loads(text)["finished"][0]
    check_equal(record["outcome"], "done", text)
    check_equal(record["generated_tokens"], N_TOKENS, text)
    check(record["stages"] and record["driver"] == record["stages"][0]["node"], text)
    check(record["forecast_decode_tokens_per_s"] > 0, text)
    check_equal(record["client"], None, "a reader without admin sees who asked")


def scenario(world):
    for tool in ("prometheus", "promtool"):
        check(shutil.which(tool), f"there is no {tool}")
    ca = world.folder / "ca.pem"
    with world.step("three nodes, a model, a token for Prometheus and one for a client"):
        nodes, reader, client = started(world)
        laptop, tower, mini = nodes
        laptop.medley("ca", "export", "--out", ca)
        laptop.medley("place", world.model)
        for node in nodes:
            wait(f"{node.name} shows metrics", lambda n=node: shows_metrics(n, ca, reader), 30)
        check_equal(https(tower, ca, "", "GET", "/metrics")[0], 401, "without a token")
    server = Prometheus(world, nodes, ca, reader)
    try:
        with world.step("it scrapes all three"):
            wait("Prometheus answers", server.answers, 30)
            wait("three are up", lambda: server.value('sum(up{job="medley"})') == 3, 30)
            check_equal(server.value("count(medley_build_info)"), 3, "nodes")
        with world.step("requests and tokens are counted where they were asked for, once"):
            body = chat_body("Tell me of a duck.", model=laptop.status()["models"][0]["name"],
                             max_tokens=N_TOKENS)
            for _ in range(N_REQUESTS):
                status, text = https(tower, ca, client, "POST", "/v1/chat/completions", body)
                check_equal(status, 200, text)
            tokens = N_REQUESTS * json.loads(text)["usage"]["completion_tokens"]
            check_equal(tokens, N_REQUESTS * N_TOKENS, "tokens of the answers")
            done = 'sum(medley_requests_total{outcome="done"})'
            wait("requests", lambda: server.value(done) == N_REQUESTS)
            check_equal(server.value("sum(medley_generated_tokens_total)"), tokens, "tokens")
            check_equal(server.value("sum(medley_time_to_first_token_seconds_count)"), N_REQUESTS,
                        "first tokens")
            check_equal(server.value("sum(medley_inter_token_seconds_count)"), tokens - N_REQUESTS,
                        "between tokens")
            check_equal(server.value("sum(medley_driver_requests_total)"), N_REQUESTS,
                        "requests at the driver, wherever it is")
            check_equal(server.value("sum(medley_decode_forecast_ratio_count)"), N_REQUESTS,
                        "measured by forecast")
            where = {labels["instance"] for labels, value in
                     server.ask("medley_requests_total") if value}
            check_equal(where, {f"{tower.address}:{API_PORT}"}, "the node that was asked")
            check_record(tower, ca, client)
        with world.step("devices, links, instance and log"):
            check_equal({labels["device"] for labels, _ in server.ask("medley_device_info")},
                        {f"sim:{node.name}" for node in nodes}, "devices")
            wait("temperatures",
                 lambda: len(server.ask("medley_device_temperature_celsius > 20")) == 3)
            check_equal(len(server.ask('medley_device_governor_state == 1')), 3, "governors")
            wait("power", lambda: len(server.ask("medley_device_power_watts >= 5")) == 3)
            check_equal(server.value("sum(medley_link_up)"), 6, "both ends of three links")
            wait("latency", lambda: len(server.ask("medley_link_latency_seconds > 0")) == 6, 30)
            check_equal(server.value("sum(medley_slots)"), 16, "slots")
            check_equal(server.value("sum(medley_instance_ready)"), 1, "instances")
            layers = server.value("sum(medley_stage_layers)")
            with_layers = laptop.status()["models"][0]["n_layers"]
            check_equal(layers, with_layers, "layers of all stages")
            check_equal(server.value("sum(medley_consensus_leader)"), 1, "leaders")
            check_equal(server.value('sum(medley_cluster_nodes{state="up"})'), 3, "members")
            check_equal(server.value("count(count by (x) (medley_consensus_term))"), 1, "terms")
            for node in nodes:
                promtool(https(node, ca, reader, "GET", "/metrics")[1])
        with world.step("a killed node is down, and the rules say so"):
            check(not any(name == "MedleyNodeDown" for name, _ in server.alerts()), "too early")
            mini.kill()
            address = f"{mini.address}:{API_PORT}"
            wait("up is 0", lambda: server.value(f'up{{instance="{address}"}}') == 0)
            check_equal(server.value("sum(up)"), 2, "the others")
            wait("the leader misses it",
                 lambda: server.value('sum(medley_cluster_nodes{state="down"})') == 1)
            wait("the alert waits its time",
                 lambda: ("MedleyNodeDown", "pending") in server.alerts())
            wait("the alert fires", lambda: ("MedleyNodeDown", "firing") in server.alerts(), 60)
    except BaseException:
        server.log.seek(0)
        world.say(server.log.read()[-3000:])
        raise
    finally:
        server.end()


run(scenario)
