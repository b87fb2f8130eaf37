"""Alerts reach a webhook: signed, from the leader alone, though the receiver fails, hangs or sends
elsewhere; and from the next leader when that one dies."""
import hashlib
import hmac
import json
import subprocess
import sys
import time

from harness import check, check_equal, run, wait

SECRET = "a secret of the test"
PORT = 9000
# Answers as the last line of `mode` says; keeps what came with an answer, a line of JSON each.
RECEIVER = """
import http.server, json, sys, time
mode, kept = sys.argv[1], sys.argv[2]
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        how = open(mode).read().split()[-1]
        if how == "hangs":
            time.sleep(60)
            return
        code = {"fails": 503, "redirects": 302}.get(how, 200)
        with open(kept, "a") as out:
            out.write(json.dumps({"code": code, "body": body, "path": self.path,
                "signature": self.headers.get("x-medley-signature")}) + "\\n")
        self.send_response(code)
        if code == 302:
            self.send_header("location", "/elsewhere")
        self.send_header("content-length", "0")
        self.end_headers()
    def log_message(self, *words):
        pass
http.server.ThreadingHTTPServer(("", int(sys.argv[3])), Handler).serve_forever()
"""


class Receiver:
    def __init__(self, world, node):
        self.mode, self.kept = world.folder / "mode", world.folder / "kept"
        self.kept.touch()
        self.answer("well")
        with node.network.inside():
            self.process = subprocess.Popen(
                [sys.executable, "-c", RECEIVER, self.mode, self.kept, str(PORT)]
            )
        self.url = f"http://{node.address}:{PORT}/hook"

    def answer(self, how):
        self.mode.write_text(how)

    def requests(self, code=None):
        lines = [json.loads(line) for line in self.kept.read_text().splitlines()]
        return [line for line in lines if code in (None, line["code"])]

    def told(self, event, kind, about):
        found = [json.loads(line["body"]) for line in self.requests(200)]
        return [
            body
            for body in found
            if body["event"] == event
            and (body["alert"]["kind"], body["alert"]["about"]) == (kind, about)
        ]


def scenario(world):
    secret = world.folder / "secret"
    secret.write_text(SECRET + "\n")
    nodes = [world.node(name) for name in ("laptop", "tower", "attic")]
    laptop, tower, attic = nodes
    receiver = None
    try:
        with world.step("three nodes with a webhook"):
            url = f"http://{attic.address}:{PORT}/hook"
            signed = ["--alert-webhook-secret-file", secret]
            url_file = world.folder / "url"
            url_file.write_text(url + "\n")
            hook = {"laptop": ["--alert-webhook-file", url_file, *signed], "tower": signed,
                    "attic": ["--alert-webhook", url, *signed]}
            tower.more = {"MEDLEY_ALERT_WEBHOOK": url}
            receiver = Receiver(world, attic)
            bad = laptop.medley("up", "--alert-webhook", "ftp://x", ok=False)
            check("--alert-webhook" in bad.err, bad)
            both = laptop.medley("up", "--alert-webhook", url, "--alert-webhook-file", url_file,
                                 ok=False)
            check("not both" in both.err, both)
            laptop.start("--new", *hook["laptop"], "--sim", world.sim("laptop", memory="4MiB"))
            wait("laptop founds a cluster", lambda: laptop.leader() == "laptop")
            for node in (tower, attic):
                code = laptop.invite()
                sim = world.sim(node.name, memory="64MiB")
                node.start("--peer", laptop.address, *hook[node.name], "--sim", sim)
                wait(f"{node.name} listens to commands", node.status)
                node.medley("join", code, laptop.address)
            for node in nodes:
                node.wait_until({"laptop": "up", "tower": "up", "attic": "up"}, 20)
            wait("three vote", lambda: laptop.status()["cluster"]["voters"] == 3)

        with world.step("a receiver that fails at first: told again, and signed, by one node"):
            receiver.answer("fails")
            tower.kill()
            wait("it has failed twice", lambda: len(receiver.requests(503)) >= 2, 20)
            receiver.answer("well")
            wait("it is told", lambda: receiver.told("raised", "node_lost", "tower"), 20)
            for request in receiver.requests():
                mac = hmac.new(SECRET.encode(), request["body"].encode(), hashlib.sha256)
                check_equal(request["signature"], "sha256=" + mac.hexdigest(), "signature")
            body = receiver.told("raised", "node_lost", "tower")[0]
            check(body["text"].startswith("Medley, critical: tower has not been"), body)
            check_equal(body["told_by"], "laptop", "who told it")
            tower.start()
            wait("its end is told", lambda: receiver.told("cleared", "node_lost", "tower"), 30)
            check_equal(len(receiver.told("raised", "node_lost", "tower")), 1, "times told")

        with world.step("a receiver that sends elsewhere is given up, and nobody followed"):
            receiver.answer("redirects")
            tower.kill()
            wait("it was asked", lambda: receiver.requests(302), 20)
            wait("it is given up", lambda: "was given up" in laptop.log_text(), 20)
            check_equal({request["path"] for request in receiver.requests()}, {"/hook"}, "paths")

        with world.step("a receiver that hangs holds nobody"):
            receiver.answer("hangs")
            tower.start()
            wait("it is over", lambda: not laptop.json("alerts")["alerts"], 30)
            began = time.monotonic()
            laptop.status()
            check(time.monotonic() - began < 5, "the node waits for the receiver")
            receiver.answer("well")
            over = lambda: receiver.told("cleared", "node_lost", "tower")  # noqa: E731
            wait("told in the end", lambda: len(over()) > 1, 40)

        with world.step("the leader dies: the next one tells"):
            laptop.kill()
            wait("it is told", lambda: receiver.told("raised", "node_lost", "laptop"), 40)
            check(receiver.told("raised", "node_lost", "laptop")[0]["told_by"] != "laptop", "who")
    finally:
        if receiver:
            receiver.process.kill()
            receiver.process.wait()


run(scenario)
