"""Who belongs to a cluster: a node is removed and refused at once, one leaves and comes again, two
clusters share a network, two nodes a name."""
from harness import check, check_equal, run, wait

NAME = "Medley Stories"
PROMPT = "Tell me a story about a duck."
SMALL = {"memory": "32MiB"}


def knows(node, names):
    return (node.nodes() or {}) == {name: "up" for name in names}


def removed(world, laptop, tower, attic):
    with world.step("a removed node is refused at once by both others"):
        check("tower" in laptop.medley("remove", "tower").out, "medley remove does not say whom")
        for node in (laptop, attic):
            wait(
                f"{node.name} does without tower",
                lambda node=node: knows(node, ["laptop", "attic"]),
                5,
            )
        check("no node 'tower'" in laptop.medley("remove", "tower", ok=False).err, "removed twice")
        wait(
            "tower says so",
            lambda: "no node of the cluster is reached" in tower.log_text()
            and "If this machine was removed" in tower.log_text(),
            15,
        )
        tower.end()
        ended = len(tower.log_text())
        tower.start()
        wait(
            "tower is refused by both",
            lambda: all(
                f"dialling {address} port 7979 again" in tower.log_text()[ended:]
                for address in (laptop.address, attic.address)
            ),
            15,
        )
        for node in (laptop, attic):
            check(knows(node, ["laptop", "attic"]), f"{node.name}: {node.nodes()}")
        check(tower.leader() is None, f"tower has a leader: {tower.leader()}")
        code = laptop.invite()
        check(
            "medley leave" in tower.medley("join", code, laptop.address, ok=False).err,
            "tower joins while removed",
        )
    with world.step("it leaves, and joins again with a code, as a new node"):
        wait(
            "tower says so again",
            lambda: "If this machine was removed" in tower.log_text()[ended:],
            15,
        )
        before = tower.status()["node"]["id"]
        tower.medley("leave")
        tower.ended()
        tower.start("--sim", world.sim("tower", **SMALL))
        wait("tower waits", tower.is_waiting)
        tower.medley("join", code, laptop.address)
        for node in (laptop, tower, attic):
            node.wait_until({"laptop": "up", "tower": "up", "attic": "up"}, 20)
        check(tower.status()["node"]["id"] != before, "tower has the keys of a removed node")
        wait("three vote", lambda: laptop.status()["cluster"]["voters"] == 3)


def leaves(world, laptop, tower, attic):
    with world.step("a node leaves by itself, and the others know"):
        check("leaves its cluster" in attic.medley("leave").out, "medley leave says nothing")
        check_equal(attic.ended(), 0, "exit status of a node that left")
        for node in (laptop, tower):
            wait(
                f"{node.name} does without attic",
                lambda node=node: knows(node, ["laptop", "tower"]),
                10,
            )
            check_equal(node.status()["cluster"]["nodes"], 2, "nodes")
        wait("two are no three voters", lambda: laptop.status()["cluster"]["voters"] in (1, 2))


def two_clusters(world, laptop, tower):
    with world.step("two clusters on one network do not mix"):
        other = world.node("other").start("--new", "--sim", world.sim("other", **SMALL))
        wait("other leads its own", lambda: other.leader() == "other")
        guest = world.node("guest").start(
            "--join", other.invite(), "--sim", world.sim("guest", **SMALL)
        )
        wait("guest is in", lambda: knows(guest, ["other", "guest"]), 20)
        check_equal(
            guest.status()["cluster"]["id"], other.status()["cluster"]["id"], "cluster of guest"
        )
        check(
            other.status()["cluster"]["id"] != laptop.status()["cluster"]["id"], "it is one cluster"
        )
        check(knows(laptop, ["laptop", "tower"]), f"laptop knows {laptop.nodes()}")
        check(
            "already" in guest.medley("join", laptop.invite(), laptop.address, ok=False).err,
            "a member joins elsewhere",
        )
        laptop.medley("place", world.model, "--streams", "1", "-c", "256")
        check_equal(other.http("GET", "/v1/models")[1]["data"], [], "models of the other cluster")
        check_equal(
            other.http(
                "POST",
                "/v1/chat/completions",
                {"model": NAME, "messages": [{"role": "user", "content": PROMPT}]},
            )[0],
            404,
            "the others' model",
        )
    return other, guest


def same_name(world, other, guest):
    with world.step("two nodes with the same name are told apart by their ids"):
        twin = world.node("guest")
        twin.start(
            "--join", other.invite(), "--peer", other.address, "--sim", world.sim("twin", **SMALL)
        )
        wait(
            "three are up",
            lambda: sorted((node["name"], node["state"]) for node in other.json("nodes")["nodes"])
            == [("guest", "up"), ("guest", "up"), ("other", "up")],
            20,
        )
        result = other.medley("remove", "guest", ok=False)
        check(
            "several nodes" in result.err and "id" in result.err,
            f"medley remove guest says {result}",
        )
        other.medley("remove", twin.status()["node"]["id"])
        wait("one is left", lambda: knows(other, ["guest", "other"]), 10)
        left = [node["id"] for node in other.json("nodes")["nodes"] if node["name"] == "guest"]
        check_equal(left, [guest.status()["node"]["id"]], "the node that stayed")


def scenario(world):
    with world.step("three nodes"):
        options = {
            name: ["--sim", world.sim(name, **SMALL)] for name in ("laptop", "tower", "attic")
        }
        laptop, tower, attic = world.cluster("laptop", "tower", "attic", **options)
        wait("three vote", lambda: laptop.status()["cluster"]["voters"] == 3)
    removed(world, laptop, tower, attic)
    leaves(world, laptop, tower, attic)
    other, guest = two_clusters(world, laptop, tower)
    same_name(world, other, guest)


run(scenario)
