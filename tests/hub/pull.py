"""medley pull against a hub of this machine's own (hub_server.py): every way of naming a model, and everything that
may go wrong between. With a number as argument, that many kills (suite: a few; by hand: 100)."""
import hashlib
import json
import os
import pathlib
import random
import signal
import ssl
import struct
import subprocess
import sys
import tempfile
import time

from hub_server import Hub, sum_of

MEDLEY = os.environ["MEDLEY"]
MODEL = pathlib.Path(os.environ["MEDLEY_MODEL"]).read_bytes()
PATIENCE = float(os.environ.get("MEDLEY_PATIENCE", "1")) * float(
    os.environ.get("MEDLEY_SLOWNESS", "1")
)


def gguf(seed, size):
    """Bytes that begin like a GGUF file without keys or tensors; the rest is drawn."""
    return b"GGUF" + struct.pack("<IQQ", 3, 0, 0) + random.Random(seed).randbytes(size - 24)


class World:
    """A hub and an empty state folder."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.state = pathlib.Path(self.folder.name) / "state"
        self.hub = Hub()
        self.env = {name: value for name, value in os.environ.items()
                    if not name.lower().endswith("_proxy") and not name.startswith(("HF_", "MEDLEY_"))}
        self.env |= {"MEDLEY_STATE_DIR": str(self.state), "HF_ENDPOINT": self.hub.url, "HOME": self.folder.name,
                     "MEDLEY_OLLAMA_REGISTRY": self.hub.url}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.hub.stop()
        self.folder.cleanup()

    def run(self, *words, **env):
        return subprocess.run([MEDLEY, *words], env=self.env | env, capture_output=True, text=True,
                              timeout=120 * PATIENCE, check=False)

    def pull(self, *words, **env):
        """The pulled file's path; fails where the pull did."""
        done = self.run("pull", *words, **env)
        assert done.returncode == 0, done.stderr
        return pathlib.Path(done.stdout.splitlines()[-1])

    def refuse(self, says, *words, **env):
        done = self.run("pull", *words, **env)
        assert done.returncode != 0 and says in done.stderr, (done.returncode, done.stderr)
        return done

    def pulled(self):
        """Every file below the folder of pulled models."""
        return sorted(str(path.relative_to(self.state / "pulled")) for path in self.state.glob("pulled/**/*")
                      if path.is_file())


def names_and_layout():
    with World() as world:
        hub = world.hub
        q4, q8 = gguf(1, 300_000), gguf(2, 500_000)
        hub.files["org/repo"] = {"Tiny-Q4_K_M.gguf": q4, "deep/Tiny-Q8_0.gguf": q8, 
                                "mmproj-BF16.gguf": gguf(5, 4200), "mmproj-F16.gguf": gguf(3, 4000), "mmproj-F32.gguf": gguf(4, 8000)}
        hub.files["org/worse"] = {"T-Q4_0.gguf": q4, "mmproj.gguf": gguf(6, 5000)}
        hub.models["library/tiny"] = {"latest": q4, "1b": q8}
        hub.models["ann/tiny"] = {"x": q8, "tuned": q8, "tensors": q8, "parts": q8, "pictures": q8}
        hub.plain["/a/b/Plain.gguf"] = q4
        assert world.pull("hf:org/repo:q4_k_m").read_bytes() == q4
        assert world.pull("hf:org/repo:Q8_0").read_bytes() == q8
        assert (world.state / "pulled/hf/org/repo/mmproj-F16.gguf").read_bytes() == gguf(3, 4000)
        assert world.pull("hf:org/worse", "--no-projector").read_bytes() == q4
        assert world.pull("ollama:tiny").read_bytes() == q4
        assert world.pull("ollama:tiny:1b").read_bytes() == q8
        assert world.pull("ollama:ann/tiny:x").read_bytes() == q8
        url = f"{hub.url}/a/b/Plain.gguf"
        assert world.pull(url).read_bytes() == q4
        host = hub.url.split("//")[1].replace(":", "_")
        assert world.pulled() == sorted([
            "hf/org/repo/Tiny-Q4_K_M.gguf", "hf/org/repo/Tiny-Q8_0.gguf", "hf/org/repo/mmproj-F16.gguf",
            "hf/org/worse/T-Q4_0.gguf", "ollama/tiny/latest.gguf",
            "ollama/tiny/1b.gguf", "ollama/ann/tiny/x.gguf", "ollama/tiny/latest.gguf.params",
            "ollama/tiny/1b.gguf.params", "ollama/ann/tiny/x.gguf.params",
            f"url/{host}/{hashlib.sha256(url.encode()).hexdigest()}/Plain.gguf"]), world.pulled()
        world.refuse("it has Q4_K_M, Q8_0", "hf:org/repo:Q5_K_M")
        world.refuse("has none of that name", "hf:org/none")
        world.refuse("has none of that name", "ollama:none")
        world.refuse("an adapter (LoRA) layer", "ollama:ann/tiny:tuned")
        world.refuse("a layer for each tensor", "ollama:ann/tiny:tensors")
        world.refuse("lie in 3 layers", "ollama:ann/tiny:parts")
        said = world.run("pull", "ollama:ann/tiny:pictures")
        assert said.returncode == 0, said.stderr
        for word in ("its template (", "its projector ("):
            assert said.stderr.count(word) == 1, said.stderr
        assert "its system" not in said.stderr and "its parameters" not in said.stderr, said.stderr
        beside = pathlib.Path(said.stdout.splitlines()[-1] + ".system")
        assert beside.read_bytes() == b"Be kind."
        assert "license" not in said.stderr and "adapter" not in said.stderr, said.stderr
        assert "Ollama" not in world.run("pull", "hf:org/repo:Q8_0").stderr
        world.refuse("is a path", "here.gguf")
        for name in ("hf:org", "hf:../x", "hf:org/../x", "hf:org/repo/../../x.gguf", "ollama:", "ollama:a/../b",
                     "https://user:secret@host/x.gguf", "https://host", "hf:org/repo:"):
            done = world.refuse("medley pull: ", name)
            assert done.returncode == 2 and "secret" not in done.stderr, done


def here_already():
    with World() as world:
        hub = world.hub
        hub.files["org/repo"] = {"T-Q4_0.gguf": gguf(1, 700_000)}
        path = world.pull("hf:org/repo")
        sent = hub.sent
        done = world.run("pull", "hf:org/repo")
        assert done.returncode == 0 and "was here" in done.stderr and hub.sent == sent, done.stderr
        for ending in (".pull", ".live"):  # of a crash between the last two steps
            path.with_name(path.name + ending).write_text("{}")
        world.pull("hf:org/repo")
        assert [p.name for p in path.parent.iterdir()] == [path.name]
        hub.files["org/repo"] = {"T-Q4_0.gguf": gguf(2, 700_000)}  # the hub has a newer one
        assert world.pull("hf:org/repo") == path
        assert path.read_bytes() == hub.files["org/repo"]["T-Q4_0.gguf"]


def parts():
    with World() as world:
        hub = world.hub
        names = [f"Big-Q4_0-{i:05}-of-00003.gguf" for i in (1, 2, 3)]
        hub.files["org/big"] = {"Q4_0/" + name: gguf(i, 400_000 + i) for i, name in enumerate(names)}
        path = world.pull("hf:org/big")
        assert path.name == names[0] and [p.name for p in sorted(path.parent.iterdir())] == names
        for i, name in enumerate(names):
            assert (path.parent / name).read_bytes() == gguf(i, 400_000 + i)
        for i, name in enumerate(names):
            hub.plain["/x/" + name] = gguf(i, 400_000 + i)
        path = world.pull(f"{hub.url}/x/{names[1]}")  # any part stands for all
        assert path.name == names[0] and [p.name for p in sorted(path.parent.iterdir())] == names
        del hub.files["org/big"]["Q4_0/" + names[1]]
        world.refuse("no GGUF model with all its parts", "hf:org/big")


def runs_by_name():
    """The name takes a model's place in other commands. Those that read no weights fetch its header alone; what was
    pulled is found without a server."""
    with World() as world:
        hub = world.hub
        hub.files["org/demo"] = {"demo-Q8_0.gguf": MODEL + bytes(20_000_000)}
        hub.plain["/demo.gguf"] = hub.files["org/demo"]["demo-Q8_0.gguf"]
        inspected = world.run("inspect", "hf:org/demo", "--json", TMPDIR=world.folder.name)
        assert inspected.returncode == 0 and "to pull" in inspected.stderr, inspected.stderr
        for name in ("hf:org/demo:Q8_0", f"{hub.url}/demo.gguf"):
            plan = world.run("plan", name, "--here", TMPDIR=world.folder.name)
            assert plan.returncode == 0, plan.stderr
        token_words = [MEDLEY, "tokenize", "hf:org/demo"]
        ids = subprocess.run(token_words, env=world.env, input="hello", capture_output=True, text=True, check=True)
        assert json.loads(ids.stdout)
        assert hub.sent < 4 * len(MODEL) + 4 * 4_200_000, hub.sent
        left = list(pathlib.Path(world.folder.name).glob("medley-*"))
        assert world.pulled() == [] and not left, (world.pulled(), left)
        said = world.run("run", "hf:org/demo", "-p", "Once", "-n", "2", "--devices", "cpu")
        assert said.returncode == 0, said.stderr
        assert world.pulled() == ["hf/org/demo/demo-Q8_0.gguf"], world.pulled()
        n = len(hub.requests)
        again = world.run("inspect", "hf:org/demo", "--json")
        first, second = json.loads(inspected.stdout), json.loads(again.stdout)
        assert first.pop("file") != second.pop("file") and first == second and len(hub.requests) == n


def chooses_by_plan():
    """No QUANT: the headers say what fits and how fast it would be."""
    with World() as world:
        hub = world.hub
        hub.files["org/demo"] = {"demo-Q4_K_M.gguf": MODEL, "demo-Q8_0.gguf": MODEL + bytes(64),
                                 "demo-Q2_K.gguf": MODEL}
        done = world.run("pull", "hf:org/demo")
        assert done.returncode == 0 and "chosen: " in done.stderr and "of 2 usual types" in done.stderr, done.stderr
        assert world.pulled()[0].startswith("hf/org/demo/demo-Q"), world.pulled()
        assert len(world.pulled()) == 1, world.pulled()


def tokens():
    with World() as world:
        hub = world.hub
        hub.files["org/repo"] = {"T-Q4_0.gguf": gguf(1, 3_000_000)}
        hub.faults.token = "hf_letters"
        secret = pathlib.Path(world.folder.name) / "token"
        secret.write_text("hf_letters\n")
        world.refuse("wants a token", "hf:org/repo")
        done = world.refuse("not good for it", "hf:org/repo", HF_TOKEN="hf_wrong")
        assert "hf_wrong" not in done.stderr
        secret.chmod(0o644)
        world.refuse("token", "hf:org/repo", HF_TOKEN_PATH=str(secret))
        world.refuse("token", "hf:org/repo", "--token-file", str(secret))
        secret.chmod(0o600)
        path = world.pull("hf:org/repo", HF_TOKEN_PATH=str(secret), MEDLEY_LOG="debug")
        assert path.read_bytes() == gguf(1, 3_000_000)
        path.unlink()
        done = world.run("pull", "hf:org/repo", HF_TOKEN="hf_letters", MEDLEY_LOG="debug")
        assert done.returncode == 0 and "hf_letters" not in done.stderr + done.stdout
        told = [headers for port, _, headers in hub.requests if port == hub.second.server_port]
        assert told and not any("Authorization" in headers for headers in told)


def plain_http():
    with World() as world:
        world.refuse("--allow-http", "http://example.invalid/x.gguf")
        world.hub.plain["/x.gguf"] = gguf(1, 100_000)
        data = world.hub.plain["/x.gguf"]
        world.refuse("SHA-256", f"{world.hub.url}/x.gguf", "--sha256", "0" * 64)
        assert world.pulled() == []
        done = world.run("pull", f"{world.hub.url}/x.gguf", "--sha256", hashlib.sha256(data).hexdigest())
        assert done.returncode == 0 and "checked by SHA-256" in done.stderr
        done = world.run("pull", f"{world.hub.url}/x.gguf")
        assert "not checked" in done.stderr
        world.hub.plain["/page.gguf"] = b"<html>no</html>"
        world.refuse("not a GGUF file", f"{world.hub.url}/page.gguf")


def bad_servers():
    with World() as world:
        hub = world.hub
        data = gguf(7, 6_000_000)
        hub.files["org/repo"] = {"T-Q4_0.gguf": data}
        hub.faults.cut = 0.5
        hub.faults.turned_away, hub.faults.expire_after, hub.faults.odd_range = 2, 3, 2
        started = time.monotonic()
        last = world.run("pull", "hf:org/repo", "--json")
        assert last.returncode == 0, last.stderr
        assert "attempt 2 of 10" in last.stderr, last.stderr  # nobody waits without a word
        last = json.loads(last.stdout.splitlines()[-1])
        path = pathlib.Path(last["path"])
        assert path.read_bytes() == data and time.monotonic() - started >= 1  # Retry-After
        assert last["received"] == len(data), last  # odd ranges were refused at their heads
        path.unlink()
        hub.faults.cut, hub.faults.ranges, hub.faults.expire_after = 0, False, 0
        assert world.pull("hf:org/repo").read_bytes() == data  # a server without ranges
        path.unlink()
        hub.faults.hashes = False
        world.refuse("gives no SHA-256", "hf:org/repo")


def wrong_bytes():
    """The server spoils some answers: found by the hash, fetched again, never used."""
    with World() as world:
        hub = world.hub
        data = gguf(8, 4_000_000)
        hub.files["org/repo"] = {"T-Q4_0.gguf": data}
        hub.faults.wrong = 0.15
        path = world.pull("hf:org/repo")
        assert path.read_bytes() == data
        path.unlink()
        hub.faults.always_wrong = True
        world.refuse("do not have the SHA-256", "hf:org/repo")
        assert world.pulled() == []


def changed_on_the_way():
    """Without a hash the ETag tells versions apart: nothing is mixed."""
    with World() as world:
        hub = world.hub
        first, second = gguf(1, 2_000_000), gguf(2, 2_000_000)
        hub.plain["/x.gguf"] = first
        hub.faults.rate = 200_000
        assert not killed(world, ("pull", f"{hub.url}/x.gguf"), 1.2)
        hub.plain["/x.gguf"] = second
        hub.faults.rate = 0
        assert world.pull(f"{hub.url}/x.gguf").read_bytes() == second


def killed(world, words, after_s):
    """Starts it and kills it so much later; True: it had ended by itself."""
    process = subprocess.Popen([MEDLEY, *words], env=world.env, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    try:
        process.wait(after_s)
        return True
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()
        return False


def damage(world, draw):
    """The disk turns over a bit of what is here."""
    for part in world.state.glob("pulled/**/*.part"):
        state = part.with_suffix(".pull")
        if not state.exists():
            continue
        ranges = json.loads(state.read_text())["done"]
        if not ranges:
            continue
        start, end = draw.choice(ranges)
        at = draw.randrange(start, end)
        with part.open("r+b") as file:
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 1]))
        return True
    return False


def kills(n):
    """Killed again and again at drawn moments while the disk spoils what is there: no byte comes twice beyond 1 % and
    what has to be mended, and no wrong one is used."""
    draw = random.Random(os.environ.get("MEDLEY_SEED", "4"))
    with World() as world:
        hub = world.hub
        size = 8_000_000 * n
        data = gguf(9, size)
        hub.files["org/repo"] = {"T-Q4_0.gguf": data}
        sum_of("sha256", data), sum_of("md5", data)
        hub.faults.rate = 2_500_000 / PATIENCE  # of each of four connections
        done, spoiled = 0, 0
        for i in range(10 * n):
            if i >= n and hub.sent > size / 20:
                break  # on a busy machine it may be killed before anything comes
            done += killed(world, ("pull", "hf:org/repo"), draw.uniform(0.05, 0.9) * PATIENCE)
            if i in (n // 3, n // 2):
                spoiled += damage(world, draw)
        assert done == 0, "it ended before it was killed often enough"
        hub.faults.rate = 0
        before = hub.sent
        last = world.run("pull", "hf:org/repo", "--json")
        assert last.returncode == 0, last.stderr
        last = json.loads(last.stdout.splitlines()[-1])
        assert pathlib.Path(last["path"]).read_bytes() == data
        assert before > size / 20, "it was killed before anything came"
        twice = hub.sent - size
        piece = 256 * 1024
        print(f"# {n} kills, {spoiled} damages, {size} bytes, {before} of them before the last run, {twice} twice ({100 * twice / size:.2f} %), "
              f"{spoiled * piece} of them to mend; {last['received'] - size} twice as the client saw it", flush=True)
        assert twice - spoiled * piece <= size / 100, twice
        assert last["received"] - size <= spoiled * piece, last


def two_at_once():
    with World() as world:
        world.hub.files["org/repo"] = {"T-Q4_0.gguf": gguf(1, 1_500_000)}
        world.hub.faults.rate = 100_000
        first = subprocess.Popen([MEDLEY, "pull", "hf:org/repo"], env=world.env, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL)
        while not list(world.state.glob("pulled/**/*.part")):
            time.sleep(0.02)
        time.sleep(0.2)
        world.refuse("being pulled by another process", "hf:org/repo")
        assert first.wait(60 * PATIENCE) == 0


def progress():
    with World() as world:
        world.hub.files["org/repo"] = {"T-Q4_0.gguf": gguf(1, 2_000_000)}
        world.hub.faults.rate = 250_000
        done = world.run("pull", "hf:org/repo", "--json")
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        moved = [line for line in lines if line["event"] == "progress"]
        assert len(moved) >= 3 and all(a["done"] <= b["done"] for a, b in zip(moved, moved[1:])), lines
        assert any("bytes_per_s" in line and "left_s" in line for line in moved), lines
        assert lines[-1]["event"] == "done" and lines[-1]["checked"] and lines[-1]["received"] == 2_000_000, lines[-1]


def no_room():
    with World() as world:
        world.hub.files["org/repo"] = {"T-Q4_0.gguf": gguf(1, 1_000_000)}
        tree = world.hub.files["org/repo"]

        class Huge(bytes):
            def __len__(self):
                return 1 << 45

        tree["T-Q4_0.gguf"] = Huge(tree["T-Q4_0.gguf"])
        world.refuse("make room", "hf:org/repo")
        assert world.hub.sent == 0


def certificate(folder):
    """A key and a certificate of 127.0.0.1 that vouches for itself."""
    path = pathlib.Path(folder) / "server.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                    "-keyout", path, "-out", str(path) + ".crt", "-days", "2", "-subj", "/CN=test",
                    "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    return str(path) + ".crt", str(path)


def https():
    """The certificate has to hold, and HTTPS does not lead on to HTTP."""
    with World() as world:
        hub = world.hub
        own, key = certificate(world.folder.name)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(own, key)
        first, second = hub.start(True, tls), hub.start(False, tls)
        endpoint = f"https://127.0.0.1:{first.server_port}"
        hub.files["org/repo"] = {"T-Q4_0.gguf": gguf(1, 600_000)}
        world.refuse("certificate", "hf:org/repo", HF_ENDPOINT=endpoint)
        env = {"HF_ENDPOINT": endpoint, "SSL_CERT_FILE": own, "HF_TOKEN": "hf_letters"}
        hub.faults.token = "hf_letters"
        done = world.refuse("a place that is not HTTPS", "hf:org/repo", **env)  # it sends on to http://localhost
        assert "hf_letters" not in done.stderr and hub.sent == 0
        hub.other_url = f"https://127.0.0.1:{second.server_port}"
        before = len(hub.requests)
        assert world.pull("hf:org/repo", **env).read_bytes() == gguf(1, 600_000)
        told = [headers for port, _, headers in hub.requests[before:] if port == second.server_port]
        assert told and not any("Authorization" in headers for headers in told)
        for server in (first, second):
            server.shutdown()
            server.server_close()


def pages():
    with World() as world:
        world.hub.files["org/repo"] = {f"T{i}-Q{i}_K.gguf": gguf(i, 1000 + i) for i in range(2, 9)}
        world.hub.faults.page_size = 2
        assert world.pull("hf:org/repo:Q8_K").read_bytes() == gguf(8, 1008)


TESTS = [names_and_layout, here_already, parts, runs_by_name, chooses_by_plan, tokens, plain_http, bad_servers,
         wrong_bytes, changed_on_the_way, two_at_once, progress, no_room, https, pages]


def main():
    chosen = [test for test in TESTS if not sys.argv[1:] or test.__name__ in sys.argv[1:]]
    numbers = [int(word) for word in sys.argv[1:] if word.isdigit()]
    runs = [(test.__name__, test) for test in chosen]
    if numbers or not sys.argv[1:]:
        n = numbers[0] if numbers else 8
        runs.append((f"{n} kills", lambda: kills(n)))
    print(f"1..{len(runs)}")
    failed = 0
    for i, (name, test) in enumerate(runs, 1):
        try:
            test()
            print(f"ok {i} - {name}", flush=True)
        except Exception as problem:  # the next tests say more
            failed += 1
            print(f"not ok {i} - {name}\n# {type(problem).__name__}: {str(problem)[:2000]}".replace("\n", "\n# ")
                  .replace("# not ok", "not ok"), flush=True)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
