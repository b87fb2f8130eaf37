"""The control plane of three nodes at rest: what it costs. The figures are printed; the bounds are
generous."""
import time

from harness import PATIENCE, check, run, wait

SECONDS = 20
SENT_MAX = 20e3  # bytes a second


def bare_bytes(world):
    """The memory of a node that is in no cluster."""
    idle = world.node("bare")
    idle.start("--no-discovery", "--join", "0000-0000", "--sim", world.sim("bare", memory="4MiB"))
    wait("it is up", idle.status)
    found = idle.memory_bytes()
    idle.end()
    return found


def is_quiet(world, nodes):
    """No link is being measured: the first bursts, which a loaded machine puts off, take more than
    seconds of rest."""
    before = [world.wire_bytes(node)[0] for node in nodes]
    time.sleep(2)
    return all(world.wire_bytes(node)[0] - sent < 2 * SENT_MAX for node, sent in zip(nodes, before))


def at_rest(world, nodes):
    """Of each node, over SECONDS: share of a core, bytes a second sent and heard."""
    before = [(node.cpu_seconds(), world.wire_bytes(node)) for node in nodes]
    time.sleep(SECONDS)
    after = [(node.cpu_seconds(), world.wire_bytes(node)) for node in nodes]
    return [
        (
            (cpu_after - cpu) / SECONDS,
            *((then - now) / SECONDS for now, then in zip(wire, wire_after)),
        )
        for (cpu, wire), (cpu_after, wire_after) in zip(before, after)
    ]


def scenario(world):
    with world.step("three nodes without work"):
        names = ["laptop", "tower", "attic"]
        options = {name: ["--sim", world.sim(name, memory="4MiB")] for name in names}
        nodes = world.cluster(*names, **options)
        wait("three vote", lambda: nodes[0].status()["cluster"]["voters"] == 3)
        bare = bare_bytes(world)
        time.sleep(8)
        wait("the links have been measured", lambda: is_quiet(world, nodes), 30)
    with world.step(f"{SECONDS} seconds at rest"):
        for _ in range(4):  # a link's last first burst may come in any of them
            rates = at_rest(world, nodes)
            if all(sent < SENT_MAX for _, sent, _ in rates):
                break
        for node, (share, sent, heard) in zip(nodes, rates):
            beyond = node.memory_bytes() - bare
            world.say(
                f"{node.name}: {100 * share:.2f} % of a core, sends {sent / 1000:.2f} kB/s, hears "
                f"{heard / 1000:.2f}, "
                f"{node.memory_bytes() / 1e6:.1f} MB, {beyond / 1e6:.1f} MB beyond a node without "
                "cluster"
            )
            check(share < 0.1 * PATIENCE, f"{node.name} takes {share} of a core")
            check(sent < SENT_MAX, f"{node.name} sends {sent} bytes a second")
            check(beyond < 80e6 * PATIENCE, f"{node.name} has {beyond} bytes more than a bare one")


run(scenario)
