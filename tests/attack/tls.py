"""The API's TLS: who is shown which certificate, what plain HTTP, old protocols and silence get, how
a certificate is exchanged under way, and how long handshakes hold the server."""
import contextlib
import os
import pathlib
import shutil
import socket
import ssl
import subprocess
import threading
import time

from attack import (LONG, PATIENCE, Prober, check, check_equal, metric, read_answer, run, wait)

HOST, CLIENT = "192.0.2.7", "192.0.2.99"
SILENT = 600 if LONG else 120
FLOOD_S = 20 if LONG else 4
TURN_MS = 200  # of processor time, in one turn of the server's loop; 36 to 53 where it is quiet
HEAD_S = 30  # after that a handshake that has not ended is given up


def medley(world, state, *words):
    kept = {key: value for key, value in os.environ.items() if not key.startswith("MEDLEY_")}
    return subprocess.run(
        [world.binary, *words],
        env=kept | {"MEDLEY_STATE_DIR": str(state)},
        capture_output=True,
        text=True,
    )


def trusting(path):
    """A client as Python's are by default, strict checks and all."""
    return ssl.create_default_context(cafile=str(path))


def why_not(server, context, name=HOST):
    """What a client says that does not get through; None: it did."""
    try:
        with server.connect_plain() as connection:
            with context.wrap_socket(connection, server_hostname=name):
                return None
    except (ssl.SSLError, ConnectionError) as problem:
        return str(problem)


def check_trust(world, server, state, ca):
    with world.step("`medley ca export` is what a client must trust, and all that it needs"):
        check_equal(server.status("GET", "/health"), 200, "with the authority")
        check(why_not(server, ssl.create_default_context()), "without it, and yet it got through")
        exported = medley(world, state, "ca", "export").stdout
        check_equal(exported, ca.read_text(), "the second export")
        check("PRIVATE" not in exported, "a key was exported")
        check_equal(os.stat(state / "api/authority.pem").st_mode & 0o777, 0o600, "the key's mode")
    with world.step("a name that is not the machine's is not taken, nor another authority"):
        host = socket.gethostname().split(".")[0].lower()
        check_equal(why_not(server, server.tls, f"{host}.local"), None, "NAME.local")
        for name in ("other.local", "192.0.2.8", "medley.example.com"):
            check(why_not(server, server.tls, name), f"{name} was taken")
    with world.step("after a restart the authority is the same"):
        server.stop()
        again = world.serve(host=HOST, state=state, tls=server.tls)
        check_equal(again.status("GET", "/health"), 200, "/health")
    return again


def plain(server, *lines, method="GET", path="/health", body=b""):
    with server.connect_plain() as connection:
        connection.sendall(server.head(method, path, *lines) + body)
        return read_answer(connection)


def check_plain(world, server):
    with world.step("plain HTTP is told where to go, and gets nothing else"):
        body = b'{"prompt": "a", "max_tokens": 1}'
        answers = {
            "GET": plain(server),
            "a foreign Host": plain(server, "Host: evil.example"),
            "POST": plain(server, f"Content-Length: {len(body)}", method="POST",
                          path="/v1/completions", body=body),
            "POST without a body": plain(server, "Content-Length: 31000000", method="POST",
                                         path="/v1/completions"),
            "metrics": plain(server, path="/metrics"),
        }
        for name, answer in answers.items():
            check_equal(answer.status, 400, f"{name}: {answer}")
            check(b"https://" in answer.body, f"{name}: it does not say where to go: {answer}")
            check_equal(answer.headers.get("connection"), "close", f"{name}: the connection")
    with world.step("nor does a change of protocol get anything"):
        for lines in (
            ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
             "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="),
            ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk"),
            ("Connection: Upgrade", "Upgrade: TLS/1.3"),
        ):
            check(plain(server, *lines).status in (400, 403, None), f"{lines}")
        with server.connect_plain() as connection:
            connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9))
            check(read_answer(connection).status in (400, 403, 405, None), "HTTP/2 with prior knowledge")
        with server.connect_plain() as connection:
            connection.sendall(server.head("CONNECT", "evil.example:443"))
            check(read_answer(connection).status in (400, 403, 405, None), "CONNECT")


def s_client(server, *words):
    """openssl's client, which can still speak what Python's cannot: whether it got through."""
    done = subprocess.run(
        ["openssl", "s_client", "-connect", f"{HOST}:{server.port}", *words],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20 * PATIENCE,
    )
    return done.returncode == 0 and "Cipher is (NONE)" not in done.stdout, done.stdout


def check_versions(world, server):
    weak = "ALL:COMPLEMENTOFALL:@SECLEVEL=0"
    with world.step("nothing older than TLS 1.2, and that with ephemeral keys and AEAD only"):
        check(s_client(server, "-tls1_3")[0], "TLS 1.3")
        for suite in ("ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"):
            check(s_client(server, "-tls1_2", "-cipher", suite)[0], suite)
        for version in ("-tls1", "-tls1_1"):
            check(not s_client(server, version, "-cipher", weak)[0], f"{version} got through")
        for suite in ("ECDHE-ECDSA-AES128-SHA", "ECDHE-ECDSA-AES256-SHA384", "AES128-GCM-SHA256",
                      "ECDHE-ECDSA-AES128-CCM8", "NULL", "aNULL"):
            through = s_client(server, "-tls1_2", "-cipher", f"{suite}:@SECLEVEL=0")[0]
            check(not through, f"{suite} got through")
    with world.step("no resumption, no HTTP/2, no renegotiation"):
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.load_verify_locations(world.ca)
            context.minimum_version = context.maximum_version = version
            context.set_alpn_protocols(["h2", "http/1.1"])
            session = None
            for _ in range(2):
                with server.connect_plain() as connection:
                    with context.wrap_socket(
                        connection, server_hostname=HOST, session=session
                    ) as tls:
                        tls.sendall(server.head("GET", "/health"))
                        check_equal(read_answer(tls).status, 200, "/health")
                        check(not tls.session_reused, f"{version}: a session was resumed")
                        check_equal(tls.selected_alpn_protocol(), "http/1.1", "the protocol")
                        session = tls.session
        done = subprocess.run(
            ["openssl", "s_client", "-connect", f"{HOST}:{server.port}", "-tls1_2"],
            input="R\n", capture_output=True, text=True, timeout=20 * PATIENCE,
        )
        check("Secure Renegotiation IS supported" in done.stdout, done.stdout[-1500:])
        check("no renegotiation" in done.stderr + done.stdout, f"it renegotiated: {done.stderr}")


def check_scanner(world, server):
    """Under `./dev attack`: what a scanner that nobody here wrote says."""
    if not shutil.which("sslscan"):
        return
    with world.step("sslscan finds nothing"):
        done = subprocess.run(
            ["sslscan", "--no-colour", f"{HOST}:{server.port}"], capture_output=True, text=True
        )
        text = " ".join(done.stdout.split())
        for finding in (
            "SSLv2 disabled", "SSLv3 disabled", "TLSv1.0 disabled", "TLSv1.1 disabled",
            "Session renegotiation not supported", "Compression disabled",
            "TLSv1.2 not vulnerable to heartbleed",
        ):
            check(finding in text, f"sslscan does not say '{finding}': {done.stdout}")


def is_open(connection):
    connection.setblocking(False)
    try:
        return connection.recv(1 << 16) != b""  # all of what it was told meanwhile
    except BlockingIOError:
        return True
    except OSError:
        return False


def check_silence(world, server):
    hello = b"\x16\x03\x01\x01\x00"
    with world.step(f"{SILENT} silent and slow handshakes hold nobody else, and end") as say:
        alone = server.first_tokens_s(3)
        with contextlib.ExitStack() as stack:
            held = []
            for i in range(SILENT):
                connection = stack.enter_context(server.connect_plain(CLIENT))
                connection.sendall(hello[: i % (len(hello) + 1)])
                held.append(connection)
            begin = time.monotonic()
            beside = server.first_tokens_s(3)
            world.say(f"first token: {1e3 * alone:.1f} ms alone, {1e3 * beside:.1f} ms beside them")
            check(beside < 2 * alone + 0.25 * PATIENCE, f"{beside:.3f} s beside, {alone:.3f} alone")
            while any(is_open(connection) for connection in held):
                check(time.monotonic() - begin < HEAD_S + 15 * PATIENCE, "they are still open")
                for connection in held[::7]:  # a byte now and then does not keep one open
                    with contextlib.suppress(OSError):
                        connection.send(b"\0")
                time.sleep(1)
        check_equal(server.status("GET", "/health"), 200, "/health")


def client_hello():
    """The bytes with which a client begins: a flood needs no more of its client."""
    out = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls = context.wrap_bio(ssl.MemoryBIO(), out, server_hostname="tower.local")
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return out.read()


def burst(server, hello, count):
    """So many at once, from one address; how many of them were answered."""
    with contextlib.ExitStack() as stack:
        held = []
        for _ in range(count):
            held.append(stack.enter_context(server.connect_plain(CLIENT)))
        for connection in held:
            connection.sendall(hello)
        answered = 0
        for connection in held:
            with contextlib.suppress(OSError):
                answered += connection.recv(1) == b"\x16"  # else an alert, or closed
        return answered


def check_flood(world, server):
    with world.step(f"more handshakes than the server makes, for {FLOOD_S} s"):
        hello, sent, answered, begin = client_hello(), 0, 0, time.monotonic()
        with Prober(server) as prober:
            while time.monotonic() - begin < FLOOD_S:
                sent, answered = sent + 300, answered + burst(server, hello, 300)
        seconds = time.monotonic() - begin
        world.say(f"{sent / seconds:.0f} handshakes begun a second, {answered / seconds:.0f} "
                  f"answered; {prober.describe()}")
        check(answered <= 128 + 250 * (seconds + 1), f"{answered} in {seconds:.1f} s")
        check(answered > 100, f"only {answered} were answered")
        turn_ms = metric(server, "medley_loop_turn_max_seconds") * 1e3
        world.say(f"a turn of the loop computes for {turn_ms:.1f} ms at the most")
        check(turn_ms < TURN_MS * PATIENCE, f"a turn of the loop computed for {turn_ms} ms")
        check(max(prober.seconds) < 2.0 * PATIENCE, prober.describe())
        check_equal(len(prober.failures), 0, "probes that failed")
    with world.step("a client of another address gets in during it"):
        ended = threading.Event()

        def flood():
            while not ended.is_set():
                burst(server, hello, 100)

        thread = threading.Thread(target=flood, daemon=True)
        thread.start()
        try:
            for _ in range(10):
                check_equal(server.status("GET", "/health"), 200, "/health")
        finally:
            ended.set()
            thread.join()


def make_pair(folder, name, days="30"):
    """A certificate of its own authority, with openssl."""
    certificate, key = folder / "cert.pem", folder / "key.pem"
    new = [folder / "new-cert.pem", folder / "new-key.pem"]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-noenc", "-days", days, "-subj", f"/CN={name}", "-keyout", new[1], "-out", new[0],
         "-addext", f"subjectAltName=IP:{HOST},DNS:{name}"],
        check=True, capture_output=True,
    )
    return certificate, key, new


def shown(server):
    return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate((HOST, server.port)))


def der(path):
    return ssl.PEM_cert_to_DER_cert(pathlib.Path(path).read_text())


def check_own(world, folder):
    with world.step("--cert and --key are reread when they change; open connections stay"):
        certificate, key, new = make_pair(folder, "one.example")
        for path, to in zip(new, (certificate, key)):
            path.rename(to)
        server = world.serve("--cert", certificate, "--key", key, host=HOST)
        server.tls = trusting(certificate)
        first = der(certificate)
        check_equal(shown(server), first, "the certificate shown")
        kept = server.connect()
        kept.sendall(server.head("GET", "/health"))
        check_equal(read_answer(kept).status, 200, "/health")
        _, _, new = make_pair(folder, "two.example")
        second = der(new[0])
        new[0].rename(certificate)  # the key of the old one is there still
        wait("that the log complains", lambda: "does not belong" in server.log_text(), 20)
        check_equal(shown(server), first, "the old one, while the pair does not fit")
        new[1].rename(key)
        wait("the new certificate", lambda: shown(server) == second, 20)
        kept.sendall(server.head("GET", "/health"))
        check_equal(read_answer(kept).status, 200, "/health on the old connection")
        kept.close()
    with world.step("a damaged file, an empty one, and none keep the old one"):
        for spoil in (lambda: certificate.write_bytes(b"\x30" * 4000),
                      lambda: certificate.write_bytes(b""), key.unlink):
            spoil()
            time.sleep(2.5)
            check_equal(shown(server), second, "the old one")
        server.stop()
    with world.step("what makes no sense is said at the start"):
        for words, said in (
            (["--cert", str(certificate)], "--cert needs --key"),
            (["--key", str(key)], "--key needs --cert"),
            (["--cert", "/no/such", "--key", "/no/such"], "/no/such"),
            (["--cert", "a", "--key", "b", "--tls", "off"], "--tls off"),
            (["--tls", "maybe"], "takes auto, on or off"),
        ):
            done = medley(world, "", "serve", world.model, "--devices", "cpu", "--api",
                          "127.0.0.1:0", *words)
            check(done.returncode != 0 and said in done.stderr, f"{words}: {done}")


def scenario(world):
    world.address(HOST)
    world.address(CLIENT)
    state, own = world.folder / "state", world.folder / "own"
    state.mkdir(mode=0o700)
    own.mkdir()
    with world.step("on an address that others reach it speaks TLS without being told"):
        server = world.serve(host=HOST, state=state)
        world.ca = world.folder / "ca.pem"
        done = medley(world, state, "ca", "export", "--out", str(world.ca))
        check_equal(done.returncode, 0, f"medley ca export: {done.stderr}")
        server.tls = trusting(world.ca)
    server = check_trust(world, server, state, world.ca)
    check_plain(world, server)
    check_versions(world, server)
    check_silence(world, server)
    check_flood(world, server)
    check_scanner(world, server)
    with world.step("it still works, and ends in order"):
        check_equal(server.status("GET", "/health"), 200, "/health")
        server.stop()
    check_own(world, own)
    with world.step("--tls off is plain on purpose, and --tls on works on the loopback"):
        server = world.serve("--tls", "off", host=HOST)
        check_equal(server.status("GET", "/health"), 200, "/health")
        check("plain text" in server.log_text(), server.log_text())
        server.stop()
        server = world.serve("--tls", "on", state=state, tls=trusting(world.ca))
        check_equal(server.status("GET", "/health"), 200, "/health")
        server.stop()


run(scenario)
