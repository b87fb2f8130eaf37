"""HTTPS in a cluster: a client that trusts `medley ca export` reaches the admin and the plain member
alike, after restarts and without the admin; nobody shows another node's name."""
import re
import shutil
import ssl
import subprocess

from harness import API_PORT, check, check_equal, run, wait

SMALL = {"memory": "32MiB"}


def curl(node, ca, host, *words):
    """Of another machine: exit status and what it got, `host` being looked up as node's address."""
    with node.world.nodes[-1].network.inside():
        done = subprocess.run(
            ["curl", "--silent", "--show-error", "--max-time", "20", "--cacert", ca, "--resolve",
             f"{host}:{API_PORT}:{node.address}", f"https://{host}:{API_PORT}/health", *words],
            capture_output=True, text=True,
        )
    return done.returncode, done.stdout + done.stderr


def reaches(node, ca, host):
    return curl(node, ca, host)[0] == 0


def shown(node, ca, folder):
    """The names of the certificate that it shows."""
    context = ssl.create_default_context(cafile=str(ca))
    context.check_hostname = False
    with node.world.nodes[-1].network.inside(), node.connect(node.address) as plain:
        with context.wrap_socket(plain) as tls:
            return sorted(value for _, value in tls.getpeercert()["subjectAltName"])


def started(world):
    """laptop is an admin, tower a plain member, and the client a machine without a node."""
    nodes = {}
    for name in ("laptop", "tower"):
        node = world.node(name)
        nodes[name] = node
        words = ["--sim", world.sim(name, **SMALL), "--api", f"{node.address}:{API_PORT}", "--open"]
        if name == "tower":
            words += ["--peer", nodes["laptop"].address, "--host", "shed.lan"]
            code = nodes["laptop"].invite()
            node.start(*words)
            wait("tower listens to commands", node.status)
            node.medley("join", code, nodes["laptop"].address)
        else:
            node.start("--new", "--host", "study", "--host", "den.lan", *words)
            wait("laptop founds a cluster", lambda: nodes["laptop"].leader() == "laptop")
    world.node("client")
    return nodes["laptop"], nodes["tower"]


def scenario(world):
    check(shutil.which("curl"), "there is no curl")
    ca = world.folder / "ca.pem"
    with world.step("one exported authority reaches the admin and the plain member"):
        laptop, tower = started(world)
        laptop.medley("ca", "export", "--out", ca)
        for node in (laptop, tower):
            for host in (node.address, f"{node.name}.local", f"{node.name}.lan"):
                wait(f"{node.name} as {host}", lambda n=node, h=host: reaches(n, ca, h), 20)
        check_equal(tower.medley("ca", "export").out.count("BEGIN"), 2, "tower's export")
        check(ca.read_text() in tower.medley("ca", "export").out, "tower exports another authority")
        check("PRIVATE" not in tower.medley("ca", "export").out, "a key was exported")
    with world.step("names of --host are an admin's to sign, and only for itself"):
        for host in ("study.local", "study.lan", "den.lan"):
            check(reaches(laptop, ca, host), f"laptop as {host}: {curl(laptop, ca, host)}")
        for host in ("shed.lan", "laptop.local", "study.lan"):
            check_equal(curl(tower, ca, host)[0], 60, f"tower as {host}")
        names = shown(tower, ca, world.folder)
        check(not [name for name in names if name.startswith(("laptop", "shed"))], f"{names}")
    with world.step("without an admin, after a restart, it shows the same"):
        laptop.end()
        tower.end()
        before = (tower.state / "api/signed.pem").read_text()
        tower.start()
        wait("tower is reached", lambda: reaches(tower, ca, "tower.local"), 20)
        check_equal((tower.state / "api/signed.pem").read_text(), before, "what is kept")
        laptop.start()
        wait("a new one is signed", lambda: (tower.state / "api/signed.pem").read_text() != before,
             30)
        wait("tower is reached", lambda: reaches(tower, ca, "tower.local"), 20)
    with world.step("with another authority all have another certificate"):
        laptop.medley("authority", "rotate")
        wait("it is rotated", lambda: "rotated" in laptop.medley("audit").out, 20)
        new = world.folder / "new.pem"

        def is_over():
            laptop.medley("ca", "export", "--out", new)
            return new.read_text() != ca.read_text()

        wait("the old one is retired", is_over, 60)
        for node in (laptop, tower):
            wait(f"{node.name} with the new one",
                 lambda n=node: reaches(n, new, f"{n.name}.local"), 30)
    with world.step("who leaves gives it up"):
        tower.medley("leave")
        tower.ended()
        check(not (tower.state / "api/signed.pem").exists(), "it is kept")


run(scenario)
