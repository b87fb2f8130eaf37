"""The record of who did what: three nodes keep the same, whoever did it and wherever; over a restart
and a leader that was killed; nothing secret is in it; and what is changed in its files is named."""
import http.client
import json
import pathlib

from harness import API_PORT, PATIENCE, chat_body, check, check_equal, run, wait

MODEL = "Medley Stories"
PROMPT = "A sentence that must never be recorded: xyzzy-prompt."


def lines(node):
    """The export: the head, and the entries."""
    out = node.medley("audit", "--json").out.splitlines()
    return json.loads(out[0]), [json.loads(line) for line in out[1:]]


def entries(node):
    return [line for line in lines(node)[1] if "number" in line]


def find(node, what, **like):
    return [
        entry
        for entry in entries(node)
        if entry["what"] == what and all(text in entry[key] for key, text in like.items())
    ]


def has(node, what, **like):
    wait(f"{node.name}: {what} {like}", lambda: find(node, what, **like), 20)


def same(nodes):
    """All have the same entries, wherever each begins."""

    def check_same():
        records = [{entry["number"]: entry["hash"] for entry in entries(node)} for node in nodes]
        shared = set.intersection(*map(set, records))
        return (
            shared
            and len({max(record) for record in records}) == 1
            and all(len({record[number] for record in records}) == 1 for number in shared)
        )

    wait("all have the same record", check_same, 20)
    for node in nodes:
        wait(
            f"{node.name}: the record is good",
            lambda node=node: node.medley("audit", "--verify", ok=None).code == 0,
            10,
        )


def ask(node, token):
    connection = http.client.HTTPConnection("127.0.0.1", API_PORT, timeout=60 * PATIENCE)
    connection.sock = node.connect()
    try:
        body = chat_body(PROMPT, model=MODEL, max_tokens=4)
        shown = {"Authorization": f"Bearer {token}"} if token else {}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), shown)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def actions(laptop, tower, attic):
    """A busy day; what of it is secret."""
    secrets = ["xyzzy-prompt"]
    token = laptop.medley("token", "create", "ci", "--scope", "generate").out.strip()
    reader = tower.medley("token", "create", "viewer", "--scope", "read").out.strip()
    wrong = token[:-1] + ("0" if token[-1] != "0" else "1")
    status, answer = ask(tower, token)
    check_equal(status, 200, answer)
    check_equal(ask(attic, reader)[0], 403, "a token without the scope")
    check_equal(ask(laptop, wrong)[0], 401, "a wrong token")
    check_equal(ask(laptop, None)[0], 401, "no token")
    code = attic.invite()
    secrets += [token, reader, wrong, token[7:], code, answer]
    laptop.medley("token", "revoke", "viewer")
    attic.medley("drain", "tower")
    tower.medley("drain", "tower", "--undo")
    has(laptop, "token.created", subject="token ci ", who="root at laptop")
    has(attic, "token.created", subject="token viewer", who="root at tower")
    has(attic, "token.revoked", who="root at laptop")
    has(laptop, "token.used", who="token ci")
    has(laptop, "token.refused", who="token viewer", outcome="insufficient_scope")
    has(tower, "login.refused", outcome="invalid_api_key", subject="from loopback")
    has(tower, "login.refused", outcome="missing_api_key")
    has(tower, "join.invited", who="root at attic")
    has(tower, "setting.changed", subject="drain/", who="root at attic")
    has(laptop, "setting.cleared", subject="drain/", who="root at tower")
    has(laptop, "record.signed")
    return secrets


def changed(node):
    """Copies of the node's record with a change: found, named, and the exit status says so."""
    export = node.folder / "export"
    export.write_text(node.medley("audit", "--json").out)
    check("nothing was changed" in node.medley("audit", "--verify", export).out, "a good export")
    good = export.read_text().splitlines(keepends=True)

    def finds(text, name):
        export.write_text(text)
        found = node.medley("audit", "--verify", export, ok=False)
        check_equal(found.code, 1, name)
        check("entry 5" in found.out or "entries 5 " in found.out, f"{name}: {found.out}")

    fifth = good[5].replace('"time_ms":1', '"time_ms":2')
    finds("".join(good[:5] + [fifth] + good[6:]), "changed")
    finds("".join(good[:5] + good[6:]), "left out")
    finds("".join(good[:5]), "cut off")
    finds("".join(good[:5] + [good[6], good[5]] + good[7:]), "swapped")


def scenario(world):
    options = {name: ["--sim", world.sim(name)] for name in ("laptop", "tower", "attic")}
    nodes = laptop, tower, attic = world.cluster("laptop", "tower", "attic", **options)
    with world.step("the record begins without a refusal"):
        refused = [entry for entry in entries(laptop) if "refused" in json.dumps(entry)]
        check_equal(refused, [], "refused, and nobody has done anything wrong")
    with world.step("what is done on each is in the record of all, with who did it"):
        for node in (tower, attic):
            laptop.medley("role", node.name, "admin")
            wait(f"{node.name} is an admin", lambda node=node: find(laptop, "node.role"), 10)
        laptop.medley("place", world.model)
        has(attic, "model.added", who="root at laptop")
        has(tower, "instance.wanted", who="root at laptop")
        has(attic, "node.admitted", who="root at laptop")
        secrets = actions(laptop, tower, attic)
        same(nodes)
        shown = attic.medley("audit", "--since", "1h").out
        check("attic (root at attic): join.invited" in shown, shown)
        since = attic.medley("audit", "--since", "2020-01-01").out
        check_equal(since, attic.medley("audit").out, "since long ago")
    with world.step("nothing secret is in it"):
        for node in nodes:
            text = "".join(path.read_text() for path in pathlib.Path(node.state / "audit").iterdir())
            for secret in secrets:
                check(secret not in text, f"{node.name} has recorded {secret!r}")
            check_equal((node.state / "audit" / "head").stat().st_mode & 0o777, 0o600, "mode")
    with world.step("what is changed in a copy is named"):
        changed(laptop)
    with world.step("a node that was away, and one whose leader was killed, have the same record"):
        attic.kill()
        tower.medley("drain", "attic")
        attic.start()
        leader = next(node for node in nodes if node.name == laptop.leader())
        wait("all are up", lambda: set((tower.nodes() or {}).values()) == {"up"}, 20)
        leader.kill()
        others = [node for node in nodes if node is not leader]
        wait("another leads", lambda: others[0].leader() not in (None, leader.name), 20)
        others[1].medley("drain", "attic", "--undo")
        leader.start()
        has(leader, "setting.cleared", who=f"root at {others[1].name}")
        same(nodes)
    with world.step("a file that was changed while its node was away is set aside, and told"):
        attic.end()
        path = sorted((attic.state / "audit").glob("*.jsonl"))[0]
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 4
        path.write_bytes(data)
        found = attic.medley("audit", "--verify", ok=False)
        check_equal(found.code, 1, "exit status")
        attic.start()
        has(laptop, "record.set_aside", subject="audit.aside-1")
        aside = attic.medley("audit", "--verify", attic.state / "audit.aside-1", ok=False)
        check("entry" in aside.out, aside.out)
        same(nodes)


run(scenario)
