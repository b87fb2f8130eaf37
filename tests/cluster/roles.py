"""Who may let machines in: admins and plain members, giving and taking roles, renewed certificates,
and what a code is kept from."""
import re
import subprocess

from harness import check, check_equal, run, wait

SMALL = {"memory": "32MiB"}
KEY = "BEGIN PRIVATE KEY"


def roles(node):
    found = node.try_json("nodes")
    return {each["name"]: each["role"] for each in found["nodes"]} if found else None


def membership(node):
    return node.state / "identity" / "membership.pem"


def has_key(node):
    return KEY in membership(node).read_text()


def openssl(*words, given=None):
    words = ["openssl", *map(str, words)]
    return subprocess.run(words, input=given, capture_output=True, text=True, check=True).stdout


def founded(world):
    with world.step("the founder is an admin, who joins is a plain member"):
        options = {
            name: ["--sim", world.sim(name, **SMALL)] for name in ("laptop", "tower", "attic")
        }
        laptop, tower, attic = world.cluster("laptop", "tower", "attic", **options)
        wanted = {"laptop": "admin", "tower": "member", "attic": "member"}
        for node in (laptop, tower, attic):
            wait(f"{node.name} sees the roles", lambda node=node: roles(node) == wanted)
        check_equal([has_key(node) for node in (laptop, tower, attic)], [True, False, False], "keys")
        check("only admin" in laptop.medley("status").out, "status does not warn of one admin")
        check("plain member" in tower.medley("status").out, "status does not say the role")
    with world.step("no code of a join is in any log"):
        for node in (laptop, tower, attic):
            found = re.findall(r"\b[0-9A-HJKMNP-TV-Z]{4}-[0-9A-HJKMNP-TV-Z]{4}\b", node.log_text())
            check_equal(found, [], f"codes in the log of {node.name}")
        check("medley invite" in laptop.log_text(), "the founder does not say how to go on")
    return laptop, tower, attic


def plain_member(world, laptop, tower):
    with world.step("a plain member changes nothing, and says who may"):
        for words in (("invite",), ("remove", "attic"), ("role", "tower", "admin"),
                      ("role", "laptop", "member")):
            result = tower.medley(*words, ok=False)
            check("plain member" in result.err and "laptop" in result.err, f"{words}: {result}")
        check_equal(sorted(laptop.nodes()), ["attic", "laptop", "tower"], "nodes")
        result = laptop.medley("role", "laptop", "member", ok=False)
        check("last admin" in result.err, f"the last admin goes: {result}")
        result = laptop.medley("role", "tower", "owner", ok=False)
        check("admin or member" in result.err, f"a role that is none: {result}")


def joins_through(world, laptop, tower):
    with world.step("a plain member turns away who wants to join through it"):
        late = world.node("late")
        late.start("--sim", world.sim("late", **SMALL), "--peer", tower.address)
        wait("late waits", late.is_waiting)
        result = late.medley("join", laptop.invite(), tower.address, ok=False)
        check("plain member" in result.err, f"medley join says {result}")
    with world.step("a code for an admin makes one"):
        code = laptop.json("invite", "--role", "admin")["code"]
        late.medley("join", code, laptop.address)
        wait("late is an admin", lambda: (roles(laptop) or {}).get("late") == "admin")
        wait("late has the key", lambda: has_key(late), 20)
        wait("late can invite", lambda: late.medley("invite", ok=None).code == 0)
    return late


def promoted(world, laptop, tower, late):
    with world.step("a plain member becomes an admin, and gets the key over its link"):
        laptop.medley("role", "tower", "admin")
        wait("tower has the key", lambda: has_key(tower), 20)
        check_equal(openssl("pkey", "-in", membership(tower)),
                    openssl("pkey", "-in", membership(laptop)), "the authority's key")
        tower.medley("role", "late", "member")
        for node in (laptop, tower, late):
            wait(f"{node.name} sees it", lambda node=node: (roles(node) or {}).get("late") ==
                 "member")
    with world.step("who is none any more is refused, and gives the key up"):
        result = late.medley("remove", "attic", ok=False)
        check("plain member" in result.err and "tower" in result.err, f"late: {result}")
        wait("late has no key", lambda: not has_key(late), 30)


def renewed(world, laptop, attic):
    with world.step("a plain member's certificate is renewed by an admin"):
        attic.end()
        path, work = membership(attic), attic.folder
        pem = re.findall(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\n",
                         path.read_text(), re.S)
        names = re.search(r"URI:urn:medley:node:\w+, *URI:urn:medley:cluster:\w+",
                          openssl("x509", "-noout", "-text", given=pem[1]))[0]
        (work / "authority.pem").write_text(pem[0])
        (work / "extensions").write_text(
            "basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\n"
            "extendedKeyUsage=serverAuth,clientAuth\nsubjectKeyIdentifier=hash\n"
            f"authorityKeyIdentifier=keyid:always\nsubjectAltName={names}\n")
        request = openssl("req", "-new", "-key", attic.state / "identity" / "node.key",
                          "-subj", "/CN=Medley node")
        old = openssl("x509", "-req", "-CA", work / "authority.pem", "-CAkey", membership(laptop),
                      "-days", "100", "-extfile", work / "extensions", given=request)
        path.write_text(pem[0] + old)
        attic.start()
        wait("it is renewed", lambda: "renewed by an admin" in attic.log_text(), 30)
        new = re.findall(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\n",
                         path.read_text(), re.S)[1]
        days = 300 * 86400
        subprocess.run(["openssl", "x509", "-noout", "-checkend", str(days)], input=new, text=True,
                       check=True, capture_output=True)
        check(not has_key(attic), "attic got the key with it")
        wait("attic is there", lambda: laptop.nodes().get("attic") == "up", 20)


def authority(node):
    return openssl("x509", "-noout", "-fingerprint", "-in", membership(node))


def n_certificates(node):
    return membership(node).read_text().count("BEGIN CERTIFICATE")


def rotated(world, laptop, tower, attic, late):
    nodes = [laptop, tower, attic, late]
    with world.step("the authority gets a new key, and all have new certificates"):
        check("plain member" in attic.medley("authority", "rotate", ok=False).err, "attic rotates")
        check("no rotation" in laptop.medley("authority", "retire", ok=False).err, "too early")
        before, key = authority(laptop), openssl("pkey", "-in", membership(laptop))
        attic.end()
        laptop.medley("authority", "rotate")
        for node in (laptop, tower, late):
            wait(f"{node.name} has two certificates", lambda node=node: n_certificates(node) == 4)
        check("not over" in tower.medley("authority", "rotate", ok=False).err, "a second rotation")
    with world.step("a member that was away comes back with the old, and then the old ends"):
        attic.start()
        wait("attic is there", lambda: laptop.nodes().get("attic") == "up", 20)
        for node in nodes:
            wait(f"{node.name} has the new one alone",
                 lambda node=node: authority(node) != before and n_certificates(node) == 2, 40)
        check_equal(len({authority(node) for node in nodes}), 1, "authorities")
        check(openssl("pkey", "-in", membership(tower)) != key, "tower has the old key")
        check_equal(openssl("pkey", "-in", membership(tower)),
                    openssl("pkey", "-in", membership(laptop)), "the new key")
        check_equal([has_key(attic), has_key(late)], [False, False], "keys of plain members")
    with world.step("who was away for all of it joins again"):
        attic.end()
        before = authority(laptop)
        laptop.medley("authority", "rotate")
        wait("all others have two", lambda: all(n_certificates(n) == 4 for n in (tower, late)))
        tower.medley("authority", "retire")
        wait("it is over", lambda: authority(late) != before and authority(laptop) != before, 20)
        attic.start()
        wait("attic is refused", lambda: "another cluster" in attic.log_text(), 20)
        laptop.medley("remove", attic.status()["node"]["id"])
        attic.medley("leave")
        attic.ended()
        attic.start("--sim", world.sim("attic", **SMALL), "--peer", laptop.address)
        wait("attic waits", attic.is_waiting)
        attic.medley("join", laptop.invite(), laptop.address)
        wait("attic is there again", lambda: "attic" in [
            node["name"] for node in laptop.json("nodes")["nodes"] if node["state"] == "up"], 20)


def again(world, nodes):
    with world.step("the roles outlive a restart of all"):
        wanted = roles(nodes[0])
        for node in nodes:
            node.end()
        for node in nodes:
            node.start()
        for node in nodes:
            wait(f"{node.name} has the roles", lambda node=node: roles(node) == wanted, 30)


def scenario(world):
    laptop, tower, attic = founded(world)
    plain_member(world, laptop, tower)
    late = joins_through(world, laptop, tower)
    promoted(world, laptop, tower, late)
    renewed(world, laptop, attic)
    rotated(world, laptop, tower, attic, late)
    again(world, [laptop, tower, attic, late])


run(scenario)
