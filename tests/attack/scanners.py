"""What scanners that nobody here wrote say of TLS on the API's port and on the mesh's: sslscan and
testssl.sh, which `./dev attack` brings. Each finding is either one that docs/SECURITY.md explains,
named here, or a failure."""
import json
import os
import shutil
import ssl
import subprocess

from attack import check, check_equal, run, wait

HOST = "192.0.2.7"
SCAN_S = 600
# testssl's ids of what is meant to be as it is (docs/SECURITY.md, "Scanners").
EXPLAINED = {
    "API": ("cert_revocation", "HSTS", "security_headers"),
    "mesh": ("cert_revocation", "cert_trust", "cert_chain_of_trust", "overall_grade"),
}
BAD = ("LOW", "MEDIUM", "HIGH", "CRITICAL")


def sslscan(address, port):
    done = subprocess.run(["sslscan", "--no-colour", f"{address}:{port}"], capture_output=True,
                          text=True, timeout=SCAN_S)
    return " ".join(done.stdout.split())


def testssl(world, what, address, port, *words):
    """{id: "SEVERITY finding"} of what it finds fault with."""
    path = world.folder / f"{what}.json"
    subprocess.run(
        ["testssl", "--quiet", "--color", "0", "--warnings", "off", "--nodns", "none",
         "--jsonfile", path, *words, f"{address}:{port}"],
        capture_output=True, text=True, timeout=SCAN_S, env=os.environ | {"HOME": str(world.folder)},
    )
    found = json.loads(path.read_text())
    check(len(found) > 5, f"testssl found no more than {found}")
    for each in found:
        if each["severity"] in (*BAD, "WARN", "FATAL"):
            world.say(f"{what}: {each['severity']} {each['id']}: {each['finding']}")
    return {each["id"]: f"{each['severity']} {each['finding']}" for each in found
            if each["severity"] in BAD}


def unexplained(found, what):
    return {name: text for name, text in found.items() if not name.startswith(EXPLAINED[what])}


def scan_api(world):
    world.address(HOST)
    state, ca = world.folder / "state", world.folder / "ca.pem"
    state.mkdir(mode=0o700)
    server = world.serve(host=HOST, state=state)
    subprocess.run([world.binary, "ca", "export", "--out", ca], check=True,
                   env=os.environ | {"MEDLEY_STATE_DIR": str(state)})
    server.tls = ssl.create_default_context(cafile=str(ca))
    text = sslscan(HOST, server.port)
    for finding in ("SSLv2 disabled", "SSLv3 disabled", "TLSv1.0 disabled", "TLSv1.1 disabled",
                    "Session renegotiation not supported", "Compression disabled"):
        check(finding in text, f"sslscan does not say '{finding}': {text}")
    check_equal(unexplained(testssl(world, "API", HOST, server.port, "--add-ca", ca), "API"), {},
                "what testssl finds fault with")
    check_equal(server.status("GET", "/health"), 200, "/health after the scans")
    server.stop()


def scan_mesh(world):
    node = world.node("laptop")
    node.start("--new", "--sim", world.sim("laptop", memory="32MiB"))
    wait("it founds a cluster", lambda: node.leader() == "laptop")
    with node.network.inside():
        text = sslscan(node.address, 7979)
        world.say(f"mesh: sslscan: {text[:1500]}")
        for finding in ("SSLv2 disabled", "SSLv3 disabled", "TLSv1.0 disabled", "TLSv1.1 disabled",
                        "TLSv1.2 disabled"):
            check(finding in text, f"sslscan does not say '{finding}': {text}")
        found = testssl(world, "mesh", node.address, 7979)
    check_equal(unexplained(found, "mesh"), {}, "what testssl finds fault with")
    check_equal(node.leader(), "laptop", "the leader after the scans")


def scenario(world):
    if not shutil.which("testssl") or not shutil.which("sslscan"):
        world.say("./dev attack scanners brings sslscan and testssl.sh")
        return
    with world.step("the API's port"):
        scan_api(world)
    with world.step("the mesh's port"):
        scan_mesh(world)


run(scenario)
