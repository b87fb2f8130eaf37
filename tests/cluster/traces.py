"""`medley up --traces`: spans of each request come to a collector as OTLP/HTTP JSON, in the trace
that the client is in; a collector that hangs or goes away holds up nobody, and is counted."""
import http.client
import http.server
import json
import re
import socket
import threading
import time

from harness import PATIENCE, chat_body, check, check_equal, run, wait

PORT = 4318
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
HEX = re.compile("[0-9a-f]+")


class Collector(http.server.ThreadingHTTPServer):
    """On the node's machine; answers as it is told."""

    def __init__(self, node):
        self.messages, self.hangs = [], False
        super().__init__(("127.0.0.1", PORT), Handler, bind_and_activate=False)
        self.socket.close()
        with node.network.inside():
            self.socket = socket.create_server(("127.0.0.1", PORT))
        self.daemon_threads = True
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def requests(self):
        """Each one's spans: several may come in a message."""
        return [resource["scopeSpans"][0]["spans"] for message in self.messages
                for resource in message["resourceSpans"]]


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.server.hangs:
            time.sleep(60)
            return
        check_equal(self.path, "/v1/traces", "where to")
        check_equal(self.headers["Content-Type"], "application/json", "its type")
        self.server.messages.append(json.loads(body))
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *words):
        pass


def ask(node, model, parent=None, **more):
    connection = http.client.HTTPConnection("127.0.0.1", 8080, timeout=60 * PATIENCE)
    connection.sock = node.connect()
    headers = {"traceparent": parent} if parent else {}
    connection.request("POST", "/v1/chat/completions",
                       json.dumps(chat_body("Of a duck.", model=model, **more)), headers)
    response = connection.getresponse()
    answer = json.loads(response.read())
    connection.close()
    return response.status, answer


def check_span(span, root):
    for key, size in (("traceId", 32), ("spanId", 16)):
        check(len(span[key]) == size and HEX.fullmatch(span[key]), f"{key} of {span}")
        check(int(span[key], 16) > 0, f"{key} of {span}")
    begin, end = int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])
    check(int(root["startTimeUnixNano"]) <= begin <= end <= int(root["endTimeUnixNano"]), f"{span}")
    check(abs(begin / 1e9 - time.time()) < 600, f"the time of {span}")
    for attribute in span["attributes"]:
        check_equal(len(attribute["value"]), 1, f"{attribute}")
    if span is not root:
        check_equal(span["parentSpanId"], root["spanId"], "the parent")
        check_equal(span["traceId"], root["traceId"], "the trace")


def counted(node, outcome):
    connection = http.client.HTTPConnection("127.0.0.1", 8080, timeout=60 * PATIENCE)
    connection.sock = node.connect()
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    name = "medley_traces_queued" if outcome == "queued" else \
        f'medley_traces_total{{outcome="{outcome}"}}'
    found = re.search(rf"^{re.escape(name)} (\d+)", text, re.MULTILINE)
    return int(found[1])


def scenario(world):
    with world.step("a request's spans, in the client's trace"):
        node = world.node("tower")
        collector = Collector(node)
        node.start("--new", "--sim", world.sim("tower"), "--model", world.model, "--traces",
                   f"http://127.0.0.1:{PORT}/v1/traces")
        wait("the model is there", lambda: (node.status() or {}).get("instances"), 30)
        model = node.status()["models"][0]["name"]
        status, answer = ask(node, model, f"00-{TRACE}-{PARENT}-01", max_tokens=8)
        check_equal(status, 200, answer)
        wait("its spans", lambda: len(collector.requests()) == 1)
        spans = collector.requests()[0]
        root = spans[0]
        check_equal(root["traceId"], TRACE, "the client's trace")
        check_equal(root["parentSpanId"], PARENT, "the client's span")
        names = [span["name"] for span in spans]
        for name in (f"chat {model}", "prefill", "decode", "stage sim:tower"):
            check(name in names, f"{name} is not in {names}")
        for span in spans:
            check_span(span, root)
        values = {a["key"]: a["value"] for a in root["attributes"]}
        check_equal(values["gen_ai.response.id"], {"stringValue": answer["id"]}, "its id")
        check_equal(values["gen_ai.usage.output_tokens"], {"intValue": "8"}, "its tokens")
        check("duck" not in json.dumps(collector.messages), "the prompt went along")
    with world.step("without one it has a trace of its own; who does not sample gets none"):
        ask(node, model, max_tokens=1)
        ask(node, model, f"00-{TRACE}-{PARENT}-00", max_tokens=1)
        ask(node, model, "00-nonsense", max_tokens=1)
        wait("two more", lambda: len(collector.requests()) == 3)
        roots = [spans[0] for spans in collector.requests()]
        check_equal(len({root["traceId"] for root in roots}), 3, "traces")
        check("parentSpanId" not in roots[1], f"{roots[1]}")
        wait("they are counted", lambda: counted(node, "sent") == 3)
    with world.step("a collector that hangs holds up nobody"):
        collector.hangs = True
        begin = time.monotonic()
        for _ in range(5):
            check_equal(ask(node, model, max_tokens=1)[0], 200, "a request meanwhile")
        check(time.monotonic() - begin < 9 * PATIENCE, "requests waited for the collector")
        check_equal(counted(node, "queued"), 5, "waiting")
        node.end()


run(scenario)
