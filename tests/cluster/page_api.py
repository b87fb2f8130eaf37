"""What the page asks of a node, over HTTP: everything of docs/control.md that it may, forecasts, a
model placed while one looks on, a machine let in by its words; which scope lets to what; sessions."""
import http.client
import json
import threading
import time

from harness import API_PORT, PATIENCE, check, check_equal, run, wait

MODEL = "Medley Stories"


class Answer:
    def __init__(self, response, text):
        self.status, self.headers, self.text = response.status, response.headers, text
        self.lines = [json.loads(line) for line in text.splitlines() if line.startswith(b"{")]

    def __repr__(self):
        return f"{self.status} {self.text[:400]!r}"

    @property
    def why(self):
        return self.lines[0]["error"]["text"]


def ask(node, method, path, body=None, seconds=60, **headers):
    """One request, as the page makes it; headers of its own with '_' for '-'."""
    connection = http.client.HTTPConnection("127.0.0.1", API_PORT, timeout=seconds * PATIENCE)
    connection.sock = node.connect(seconds=seconds)
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    if body is not None:
        given = {"Content-Type": "application/json"} | given
        body = body if isinstance(body, (str, bytes)) else json.dumps(body)
    try:
        connection.request(method, path, body, given)
        response = connection.getresponse()
        return Answer(response, response.read())
    finally:
        connection.close()


def get(node, path, **headers):
    return ask(node, "GET", path, **headers)


def post(node, name, body, **headers):
    return ask(node, "POST", f"/api/{name}", body, **headers)


RECORD = {"architecture", "driver_name", "driver", "driver_fault", "compute_units",
          "threads_per_block_max", "clock_mhz_max", "peer_to_peer"}


def good(answer):
    check_equal(answer.status, 200, answer)
    return answer.lines[-1]


def looks(laptop, tower):
    for name in ("status", "nodes", "links", "cluster", "moves"):
        answer = get(laptop, f"/api/{name}")
        check_equal(answer.status, 200, name)
        check_equal(len(answer.lines), 1, f"lines of {name}")
        check_equal(answer.headers["Content-Type"], "application/x-ndjson", name)
        check_equal(answer.headers["Cache-Control"], "no-store", name)
    check_equal(
        set(good(get(tower, "/api/nodes"))["nodes"][0]),
        set(tower.json("nodes")["nodes"][0]),
        "a node, as `medley nodes --json` has it",
    )
    for device in tower.json("nodes")["nodes"][0]["devices"]:
        check(RECORD <= set(device), device)
        check_equal(device["peer_to_peer"], None, "what nobody knows of a simulated device")
    check_equal(good(get(laptop, "/api/moves")), {"moves": "on"}, "moves")
    page = get(laptop, "/")
    check_equal(page.status, 200, "the page")
    check(b"<script type=\"module\"" in page.text, page)
    check("default-src 'none'" in page.headers["Content-Security-Policy"], page.headers)


def refusals(laptop):
    check_equal(post(laptop, "place", {"model": "none"}).status, 404, "no such model")
    check_equal(post(laptop, "place", {}).status, 400, "no model")
    check_equal(post(laptop, "place", "[]").status, 400, "no object")
    check_equal(post(laptop, "place", "{").status, 400, "no JSON")
    check_equal(post(laptop, "place", "x" * 70000).status, 413, "too much")
    check_equal(post(laptop, "place", "{}", Content_Type="text/plain").status, 415, "a form's type")
    check_equal(post(laptop, "nothing", {}).status, 404, "nothing of that name")
    check_equal(post(laptop, "status", {}).status, 405, "status by POST")
    check_equal(get(laptop, "/api/place").status, 405, "place by GET")
    answer = post(laptop, "generate", {})
    check_equal(answer.status, 400, "Ollama's of that name, not the socket's")
    check(b"model" in answer.text, answer)
    check_equal(post(laptop, "moves", {"on": True}).status, 400, "on already")
    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": "http://127.0.0.1:81"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Host": "evil.example"},
    ):
        answer = post(laptop, "leave", {}, **headers)
        check_equal(answer.status, 403, f"{headers}: {answer}")
    check_equal(
        post(laptop, "moves", {"on": False}, Origin=f"http://127.0.0.1:{API_PORT}").status,
        200,
        "the page itself",
    )
    check_equal(good(post(laptop, "moves", {"on": True})), {"moves": "on"}, "moves again")


def device_of(node):
    """The id of its only device."""
    return next(n["devices"][0]["id"] for n in good(get(node, "/api/nodes"))["nodes"] if n["self"])


def plans_as_place(laptop):
    """What `place` takes, `plan` takes, too."""
    beyond = {"model": MODEL, "context": 1024, "streams": 1}
    refused = post(laptop, "plan", beyond)
    check("--rope-scaling" in str(refused.lines), refused.lines)
    rope = {"scaling": "linear", "scale": 4}
    check_equal(good(post(laptop, "plan", {**beyond, "rope": rope}))["possible"], True, "stretched")
    weights = good(post(laptop, "plan", {"model": MODEL}))["model"]["weight_bytes"]
    little = {"model": MODEL, "context": 256, "streams": 1, "without": ["tower"]}
    answer = good(post(laptop, "plan", {**little, "weights_memory": weights * 8 // 10}))
    check_equal(answer["possible"], False, "a part of the weights")
    check(answer["streamed"]["n_layers"] > 0, answer)
    check_equal(good(post(laptop, "plan", {**little, "weights_memory": "1GiB"}))["possible"], True, "all of them")
    shared = good(post(laptop, "plan", {"model": MODEL, "streams": 4, "cells": 256}))
    check_equal(shared["possible"], True, "shared cells")
    scored = {"score_weights": "memory=60", "time_limit_s": 1, "allow_precision": "q4_k"}
    check_equal(good(post(laptop, "plan", {"model": MODEL, **scored}))["possible"], True, "a score")


def plans(laptop, tower):
    theirs, ours = device_of(tower), device_of(laptop)
    begin = time.monotonic()
    best = good(post(laptop, "plan", {"model": MODEL, "context": 256, "streams": 1}))
    check(time.monotonic() - begin < 4 * PATIENCE, "a plan takes long")
    check_equal(best["possible"], True, best)
    wanted = laptop.json("plan", laptop.world.model, "-c", "256", "--streams", "1", "--goal",
                         "throughput")
    check_equal(set(best) - {"possible"}, set(wanted), "the document of medley plan --json")
    check_equal(best["best"]["stages"], wanted["best"]["stages"], "the stages of medley plan")
    n_layers = best["model"]["layers"]
    less = good(post(laptop, "plan", {"model": MODEL, "without": ["laptop"]}))
    check_equal({s["node"] for s in less["best"]["stages"]}, {"tower"}, less["best"]["stages"])
    by_id = {n["name"]: n["id"] for n in good(get(laptop, "/api/nodes"))["nodes"]}
    more = good(
        post(laptop, "plan", {"model": MODEL, "with": [{"node": by_id["tower"], "device": theirs}]})
    )
    check_equal([d["device"] for d in more["devices"] if d["node"] == "tower"],
                [theirs, f"{theirs}+1"], "a second card")
    split = [
        {"node": "tower", "device": theirs, "n_layers": 2},
        {"node": by_id["laptop"], "device": ours, "n_layers": n_layers - 2},
    ]
    wait("the links are known",
         lambda: good(post(laptop, "plan", {"model": MODEL, "layers": split}))["possible"])
    dragged = good(post(laptop, "plan", {"model": MODEL, "layers": split}))
    check_equal([(s["node"], s["layers"]) for s in dragged["best"]["stages"]],
                [("tower", 2), ("laptop", n_layers - 2)], "the layers that were dragged")
    for layers, word in ((split[:1], "layers are placed"), (split + split[:1], "on one device")):
        answer = good(post(laptop, "plan", {"model": MODEL, "layers": layers}))
        check_equal(answer["possible"], False, answer)
        check(word in answer["problem"], answer)
    answer = good(post(laptop, "plan", {"model": MODEL, "without": ["laptop", "tower"]}))
    check_equal(answer["possible"], False, answer)
    plans_as_place(laptop)
    for body in (
        {"model": "none"}, {}, {"model": MODEL, "goal": "speed"}, {"model": MODEL, "context": -1},
        {"model": MODEL, "rope": {"scaling": "round"}}, {"model": MODEL, "weights_memory": "lots"},
        {"model": MODEL, "without": ["attic"]}, {"model": MODEL, "with": [{"node": "tower"}]},
        {"model": MODEL, "layers": [{"node": "tower", "device": theirs, "n_layers": 0}]},
    ):
        check(400 <= post(laptop, "plan", body).status < 500, f"{body} is a plan")


def many_plans(laptop):
    """Who asks without end is told so, and the others' answers come."""
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(post(laptop, "plan", {"model": MODEL}).status))
        for _ in range(30)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check(set(found) <= {200, 409}, found)
    check(200 in found, found)


def places(laptop, tower):
    check_equal(good(post(laptop, "add", {"path": laptop.world.model}))["model"], MODEL, "added")
    wait("tower has heard of it",
         lambda: any(m["name"] == MODEL for m in good(get(tower, "/api/status"))["models"]))
    plans(laptop, tower)
    many_plans(laptop)
    answer = post(tower, "place", {"model": MODEL, "context": 256, "streams": 1})
    check("ready" in good(answer), answer)
    check(len(answer.lines) > 1, f"no progress is told: {answer}")
    stages = answer.lines[-1]["ready"]["stages"]
    n_layers = sum(stage["n_layers"] for stage in stages)
    theirs, ours = device_of(tower), device_of(laptop)
    moved = post(
        laptop,
        "move",
        {"instance": MODEL, "to": [
            {"node": "tower", "device": theirs, "n_layers": 1},
            {"node": "laptop", "device": ours, "n_layers": n_layers - 1},
        ]},
    )
    check_equal(good(moved)["moved"], MODEL, "moved")
    check(good(post(laptop, "where", {"model": MODEL}))["path"].startswith("/"), "where")
    check_equal(good(post(laptop, "drain", {"node": "tower"})), {"drained": "tower"}, "drained")
    check_equal(good(post(laptop, "drain", {"node": "tower", "undo": True})),
                {"undrained": "tower"}, "undrained")
    check_equal(good(post(tower, "unload", {"instance": MODEL})), {"unloaded": MODEL}, "unloaded")
    check_equal(good(post(tower, "forget", {"model": MODEL})), {"forgotten": MODEL}, "forgotten")
    events = laptop.medley("events", "--last", "100", "--json").out.splitlines()
    actors = {json.loads(line).get("actor") for line in events}
    check("the page at loopback" in actors, f"actors: {actors}")


def placements(node):
    """Each event that placed the model: True, by hand; False, by the leader."""
    events = node.medley("events", "--last", "300", "--json").out.splitlines()
    texts = [json.loads(line)["text"] for line in events]
    return ["by hand" in text for text in texts if MODEL in text and "placed" in text]


def places_as_asked(laptop, tower):
    """What was dragged before it was loaded is what is loaded, whoever leads. Asked of another node,
    wish and placement may reach a slow leader one at a time: what it placed in between is moved."""
    good(post(laptop, "add", {"path": laptop.world.model}))
    n_layers = next(m["n_layers"] for m in good(get(laptop, "/api/status"))["models"]
                    if m["name"] == MODEL)
    theirs, ours = device_of(tower), device_of(laptop)
    for asked, n_first, context in ((laptop, 1, 256), (tower, 2, 256), (tower, 3, 512)):
        wait("it is known", lambda a=asked: any(m["name"] == MODEL
                                                for m in good(get(a, "/api/status"))["models"]))
        split = [
            {"node": "tower", "device": theirs, "n_layers": n_first},
            {"node": "laptop", "device": ours, "n_layers": n_layers - n_first},
        ]
        body = {"model": MODEL, "context": context, "streams": 1, "goal": "latency", "layers": split}
        short = post(asked, "place", body | {"layers": split[:1]})
        check(400 <= short.status < 500, f"too few layers: {short}")
        before = len(placements(laptop))
        ready = good(post(asked, "place", body))["ready"]
        check_equal([(s["node"], s["n_layers"]) for s in ready["stages"]],
                    [("tower", n_first), ("laptop", n_layers - n_first)], "the split as it was asked")
        check(True in placements(laptop)[before:], "nothing was placed by hand")
    check_equal(post(laptop, "place", body | {"layers": []}).status, 400, "no layers")
    check_equal(post(laptop, "place", body | {"model": "none"}).status, 404, "no such model")
    good(post(tower, "unload", {"instance": MODEL}))
    good(post(tower, "forget", {"model": MODEL}))


def lets_in(world, laptop):
    attic = world.node("attic")
    attic.start("--peer", laptop.address, "--sim", world.sim("attic"))
    wait("attic listens", attic.status)
    joining = attic.answering("join", laptop.address)
    def waiting():
        found = [n for n in good(get(laptop, "/api/nodes"))["nodes"] if n["state"] == "waiting"]
        return found[0] if found and found[0]["words"] else None
    wait("attic waits", waiting, 25)
    words = waiting()["words"]
    check_equal(post(laptop, "admit", {"node": "attic"}).status, 400, "without words")
    wrong = " ".join(reversed(words.split()))
    answer = post(laptop, "admit", {"node": "attic", "words": wrong})
    check_equal(answer.status, 400, answer)
    check("not the words" in answer.why, answer)
    check(waiting(), "attic has gone after wrong words")
    admitted = {}
    thread = threading.Thread(
        target=lambda: admitted.update(
            answer=post(laptop, "admit", {"node": "attic", "words": words.upper()}))
    )
    thread.start()
    joining.question()
    joining.say("y")
    thread.join()
    check_equal(good(admitted["answer"]), {"admitted": "attic"}, "admitted")
    laptop.wait_until({"laptop": "up", "tower": "up", "attic": "up"})
    wait("attic is an admin", # once its version is known
         lambda: post(laptop, "role", {"node": "attic", "role": "admin"}).status == 200)
    check_equal(good(post(laptop, "role", {"node": "attic", "role": "member"})),
                {"member": "attic"}, "role")
    check_equal(good(post(laptop, "remove", {"node": "attic"}))["removed"], "attic", "removed")
    attic.end()
    first = good(post(laptop, "invite", {"minutes": 5}))
    second = good(post(laptop, "invite", {"minutes": 5}))
    check_equal(second["replaces_code"], True, f"a second code: {second}")
    check(first["code"] != second["code"], "one code, twice")
    check("void now" in laptop.medley("invite").out, "the command says so, too")


SCOPES = {  # what each scope may ask, and a request that changes nothing
    "read": [("GET", "/api/status", None), ("GET", "/api/nodes", None), ("GET", "/api/links", None),
             ("GET", "/api/cluster", None), ("GET", "/api/moves", None),
             ("POST", "/api/plan", {"model": "none"})],
    "models": [("POST", f"/api/{name}", {"model": "none", "instance": "none", "path": "none"})
               for name in ("place", "unload", "move", "add", "forget", "where")]
    + [("POST", "/api/moves", {"on": True})],
    "admin": [("POST", f"/api/{name}", {"node": "none", "what": "none", "role": "none"})
              for name in ("drain", "admit", "remove", "role", "authority", "token")]
    + [("POST", "/api/audit", {"keep_days": -1}), ("POST", "/api/invite", {"role": "none"}),
       ("POST", "/api/join", {}), ("GET", "/api/audit?last=5", None)],
}


def cookie_of(answer):
    check_equal(answer.status, 200, answer)
    check("HttpOnly; SameSite=Strict" in answer.headers["Set-Cookie"], answer.headers)
    return answer.headers["Set-Cookie"].split(";")[0]


def scopes(laptop):
    """Each token is let through to what its scope is for, and stopped before all else."""
    tokens = {scope: laptop.medley("token", "create", scope, "--scope", scope).out.strip()
              for scope in (*SCOPES, "generate")}
    wait("a token is needed", lambda: get(laptop, "/api/status").status == 401, 5)
    for scope, token in tokens.items():
        for needed, requests in SCOPES.items():
            for method, path, body in requests:
                answer = ask(laptop, method, path, body, Authorization=f"Bearer {token}")
                if scope == needed:
                    check(answer.status not in (401, 403), f"{scope}, {path}: {answer}")
                else:
                    check_equal(answer.status, 403, f"{scope}, {path}: {answer}")
                    check("needs one of" in answer.why, f"{scope}, {path}: {answer}")
    for requests in SCOPES.values():
        for method, path, body in requests:
            check_equal(ask(laptop, method, path, body).status, 401, f"nobody: {path}")
    return tokens


def sessions(laptop, tower, tokens):
    own = f"http://127.0.0.1:{API_PORT}"
    before = good(get(laptop, "/api/session"))
    check_equal((before["needs_token"], before["signed_in"], before["node"]["name"]),
                (True, False, None), before)
    cookie = cookie_of(post(laptop, "session", {"token": tokens["admin"]}, Origin=own))
    session = good(get(laptop, "/api/session", Cookie=cookie))
    check_equal((session["token"], session["scopes"], session["node"]["name"], session["cluster"]),
                ("admin", ["admin"], "laptop", True), session)
    check_equal(post(laptop, "drain", {"node": "none"}, Cookie=cookie, Origin=own).status, 404,
                "the page drains")
    check_equal(post(laptop, "drain", {"node": "none"}, Cookie=cookie).status, 401, "no Origin")
    for headers in ({"Origin": "http://evil.example"}, {"Origin": "http://127.0.0.1:81"},
                    {"Sec_Fetch_Site": "same-site"}):
        answer = post(laptop, "drain", {"node": "tower"}, Cookie=cookie, **headers)
        check(answer.status in (401, 403), f"{headers}: {answer}")
    check_equal(post(laptop, "place", {"model": "none"}, Cookie=cookie, Origin=own).status, 403,
                "beyond its scope")
    check_equal(get(tower, "/api/session", Cookie=cookie).lines[0]["signed_in"], False,
                "another node knows the session")
    made = good(post(laptop, "passes", {"scopes": "admin"}, Cookie=cookie, Origin=own))
    phone = cookie_of(post(laptop, "session", {"pass": made["pass"]}, Origin=own))
    check_equal(good(get(laptop, "/api/session", Cookie=phone))["scopes"], ["admin"], "the phone")
    check_equal(post(laptop, "session", {"pass": made["pass"]}, Origin=own).status, 401, "twice")
    entries = ask(laptop, "GET", "/api/audit?last=400", Cookie=cookie).lines
    found = {(e["what"], e["who"]) for e in entries}
    for what in ("session.opened", "pass.made"):
        check((what, "token admin") in found, f"no {what} in the record: {sorted(found)}")
    check(any(what == "login.refused" for what, _ in found), sorted(found))
    check_equal(len(ask(laptop, "GET", "/api/audit?last=3", Cookie=cookie).lines), 3, "the last 3")
    check_equal(good(post(laptop, "token", {"what": "revoke", "name": "admin"},
                          Cookie=cookie, Origin=own)), {"revoked": "admin"}, "revoked")
    for shown in (cookie, phone):
        wait("the sessions are over",
             lambda shown=shown: get(laptop, "/api/moves", Cookie=shown).status == 401, 5)


def scenario(world):
    with world.step("two nodes; the page looks"):
        options = {name: ["--sim", world.sim(name)] for name in ("laptop", "tower")}
        laptop, tower = world.cluster("laptop", "tower", **options)
        looks(laptop, tower)
    with world.step("what is refused"):
        refusals(laptop)
    with world.step("a model is planned, placed, moved, unloaded"):
        places(laptop, tower)
    with world.step("a model is placed as it was dragged"):
        places_as_asked(laptop, tower)
    with world.step("a machine is let in by its words"):
        lets_in(world, laptop)
    with world.step("each scope lets to its own requests"):
        tokens = scopes(laptop)
    with world.step("a browser signs in, another by a pass; both end with the token"):
        sessions(laptop, tower, tokens)


run(scenario)
