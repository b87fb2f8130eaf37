"""Browsers' sessions: cookies that were made up, fixed beforehand, brought by a page of another
origin, or many; passes used twice; and guessing. On `medley serve`, whose tokens are in a file."""
import json
import re
import subprocess

from attack import LONG, check, check_equal, run
from harness import wait

MANY = 1000 if LONG else 40
JSON = "Content-Type: application/json"


def create(world, file, name, *options):
    words = [world.binary, "token", "create", name, "--tokens", file, *options]
    result = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=60)
    check(result.returncode == 0, f"{words}: {result}")
    return result.stdout.strip()


def send(server, method, path, body, *lines):
    text = body if isinstance(body, str) else json.dumps(body)
    lines = [JSON, *lines] if not any(l.startswith("Content-Type") for l in lines) else lines
    head = server.head(method, path, *lines, f"Content-Length: {len(text)}")
    return server.raw(head + text.encode())


def own(server):
    return f"Origin: http://{server.authority()}"


def sign_in(server, body, *lines):
    return send(server, "POST", "/api/session", body, own(server), *lines)


def cookie_of(answer):
    found = re.match(r"(medley_session_\d+=[^;]+); (.*)", answer.headers.get("set-cookie", ""))
    check(found, f"no cookie: {answer}")
    for word in ("HttpOnly", "SameSite=Strict", "Path=/"):
        check(word in found[2], f"a cookie without {word}: {found[0]}")
    return f"Cookie: {found[1]}"


def signed_in(server, *lines):
    return server.ask("GET", "/api/session", *lines).json()


def sessions(world, server, token):
    with world.step("a token makes a session, which does what the token may"):
        nobody = signed_in(server)
        check_equal((nobody["needs_token"], nobody["signed_in"], nobody["scopes"], nobody["node"]),
                    (True, False, [], {"id": None, "name": None}), "before")
        answer = sign_in(server, {"token": token})
        check_equal(answer.status, 200, answer)
        cookie = cookie_of(answer)
        check_equal(signed_in(server, cookie)["scopes"], ["read", "generate"], "scopes")
        check_equal(server.status("GET", "/v1/models", cookie), 200, "models")
        check_equal(server.status("GET", "/metrics", cookie), 200, "metrics")
    with world.step("the cookie counts for this server's own page alone"):
        body = {"model": "demo", "prompt": "Once", "max_tokens": 1}
        path = "/v1/completions"
        check_equal(send(server, "POST", path, body, cookie, own(server)).status, 200, "its page")
        check_equal(send(server, "POST", path, body, cookie).status, 401, "no Origin")
        for line in ("Origin: http://evil.example", "Origin: null", "Origin: http://127.0.0.1:1"):
            check_equal(send(server, "POST", path, body, cookie, line).status, 403, line)
        for site in ("cross-site", "same-site", "none"):
            line = f"Sec-Fetch-Site: {site}"
            check_equal(send(server, "POST", path, body, cookie, line).status, 401, line)
        for site in ("cross-site", "same-site"):
            line = f"Sec-Fetch-Site: {site}"
            check_equal(server.status("GET", "/v1/models", cookie, line), 401, line)
        answer = send(server, "POST", "/api/passes", "{}", cookie, own(server), "Content-Type: text/plain")
        check_equal(answer.status, 415, "a form's type")
    with world.step("a session that somebody else has fixed is none; a sign-in replaces the old one"):
        made_up = cookie.split("=")[0] + "=" + "0" * 58
        check_equal(signed_in(server, made_up)["signed_in"], False, "a made-up cookie")
        again = sign_in(server, {"token": token}, made_up)
        check(cookie_of(again) != made_up, "the made-up secret was taken over")
        check_equal(signed_in(server, made_up)["signed_in"], False, "after a sign-in with it")
        newer = cookie_of(sign_in(server, {"token": token}, cookie))
        check_equal(signed_in(server, cookie)["signed_in"], False, "the old one after another")
        for bad in ("x", "=" * 58, "%00" * 20, "a" * 3000, ""):
            line = f"{cookie.split('=')[0]}={bad}"
            check_equal(server.status("GET", "/v1/models", line), 401, line[:60])
    with world.step("signing out ends it"):
        answer = server.ask("DELETE", "/api/session", newer, own(server))
        check_equal((answer.status, answer.json()), (200, {"signed_in": False}), "signing out")
        check_equal(signed_in(server, newer)["signed_in"], False, "afterwards")


def passes(world, server, token):
    with world.step("a pass signs one browser in, with no more than its scopes"):
        cookie = cookie_of(sign_in(server, {"token": token}))
        made = send(server, "POST", "/api/passes", {"scopes": "read", "minutes": 1}, cookie, own(server))
        check_equal(made.status, 200, made)
        check(made.json()["url"].endswith("/#/join?pass=" + made.json()["pass"]), made)
        phone = sign_in(server, {"pass": made.json()["pass"]})
        check_equal(phone.json()["scopes"], ["read"], "the phone's scopes")
        check_equal(server.status("GET", "/metrics", cookie_of(phone)), 200, "the phone reads")
        body = {"model": "demo", "prompt": "Once", "max_tokens": 1}
        check_equal(send(server, "POST", "/v1/completions", body, cookie_of(phone), own(server)).status,
                    403, "the phone generates")
        twice = sign_in(server, {"pass": made.json()["pass"]})
        check_equal(twice.status, 401, f"a pass used twice: {twice}")
        check_equal(server.status("GET", "/v1/models", f"Authorization: Bearer medley_{made.json()['pass']}"),
                    401, "a pass as a token")
        for more in ({"scopes": "admin"}, {"scopes": "read,models"}):
            answer = send(server, "POST", "/api/passes", more, cookie, own(server))
            check_equal(answer.status, 403, f"more than the asker has: {answer}")
        answer = send(server, "POST", "/api/passes", {}, cookie_of(phone), own(server))
        check_equal(sign_in(server, {"pass": answer.json()["pass"]}).json()["scopes"], ["read"],
                    "a pass of the phone's")
        for bad in ({"minutes": 0}, {"minutes": 10**9}, {"scopes": "root"}):
            answer = send(server, "POST", "/api/passes", bad, cookie, own(server))
            check_equal(answer.status, 400, f"{bad}: {answer}")


def guessing(world, server, token):
    with world.step("odd bodies"):
        for body in ("", "[]", "{", '{"token":7}', '{"pass":null}', "{}"):
            check_equal(sign_in(server, body).status, 400, body)
        check_equal(sign_in(server, "x" * 70000).status, 413, "too much")
    with world.step(f"{MANY} browsers of one token: the latest are good, memory does not grow"):
        first = cookie_of(sign_in(server, {"token": token}))
        before = server.memory_bytes()
        latest = [cookie_of(sign_in(server, {"token": token})) for _ in range(MANY)][-1]
        check_equal(signed_in(server, latest)["signed_in"], True, "the latest")
        check_equal(signed_in(server, first)["signed_in"], False, "the first of so many")
        check(server.memory_bytes() - before < 8e6, "sessions take memory")
    with world.step("guessing is slow, and then not looked at; who has signed in goes on"):
        wrong = token[:-1] + ("0" if token[-1] != "0" else "1")
        statuses = [sign_in(server, {"pass": "0" * 58}).status for _ in range(3)]
        check_equal(set(statuses), {401}, "wrong passes")
        while len(statuses) < 40 and 429 not in statuses:
            statuses.append(sign_in(server, {"token": wrong}).status)
        check_equal(statuses[-1], 429, f"after {len(statuses)} wrong ones")
        check_equal(server.status("GET", "/v1/models", latest), 200, "the session meanwhile")
        check_equal(sign_in(server, {"token": token}).status, 200, "a right token meanwhile")
    return latest


def revoked(world, server, file, cookie):
    with world.step("a session ends with its token"):
        words = [world.binary, "token", "revoke", "person", "--tokens", file]
        subprocess.run(list(map(str, words)), check=True, capture_output=True, timeout=60)
        wait("the session is over", lambda: server.status("GET", "/v1/models", cookie) == 401, 2)
        check_equal(signed_in(server, cookie)["signed_in"], False, "after the token was revoked")


def scenario(world):
    file = world.folder / "tokens.json"
    token = create(world, file, "person", "--scope", "read,generate")
    server = world.serve("--tokens", file, "--require-token")
    sessions(world, server, token)
    passes(world, server, token)
    latest = guessing(world, server, token)
    revoked(world, server, file, latest)
    server.stop()


run(scenario)
