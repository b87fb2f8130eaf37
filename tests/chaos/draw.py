"""What a seed draws: the cluster, and round after round of faults. Pure: the same seed gives the
same story.

A round is some quiet seconds, then one to three faults that may overlap; each heals by itself after
a while. The next round begins when the cluster is whole again.
"""
import collections
import random

Fault = collections.namedtuple("Fault", "kind at_s for_s node other amount")
Round = collections.namedtuple("Round", "quiet_s faults")
Cluster = collections.namedtuple("Cluster", "nodes memory transport runners keeper")

NAMES = ["laptop", "tower", "attic", "cellar", "shed"]
# How often each is drawn. `runner` and `hang` need processes for the devices.
KINDS = {
    "kill": 6,
    "stop": 4,
    "cut": 3,
    "cut one way": 3,
    "isolate": 3,
    "slow": 2,
    "lossy": 2,
    "full disk": 2,
    "memory": 1,
    "clock": 1,
    "end": 1,
    "power": 1,
    "runner": 3,
    "hang": 2,
}
NEEDS_RUNNERS = {"runner", "hang"}
OF_ONE_NODE = {"kill", "stop", "isolate", "slow", "end", "memory", "runner", "hang"}
DEADLY = {"kill", "end", "memory"}


def cluster_of(seed):
    """With a context of 256 and four streams the model needs two nodes with 11 MiB; with 10.4 and
    6.9 MiB in turn three, one of them with 10.4; with 24 MiB it is moved while the old stages still
    serve."""
    rng = random.Random(f"cluster {seed}")
    nodes = rng.choice([3, 4, 4, 5])
    return Cluster(
        nodes=nodes,
        memory=rng.choice(["11", "10.4/6.9", "24"]),
        transport=rng.choice(["tcp", "tcp", "tcp", "quic"]),
        runners=rng.random() < 0.7,
        keeper=rng.randrange(nodes),
    )


def _duration(rng):
    """Most are short; some outlast the 30 s after which the others found the log anew."""
    return round(
        rng.choice(
            [
                rng.uniform(0.3, 3),
                rng.uniform(2, 8),
                rng.uniform(2, 8),
                rng.uniform(8, 20),
                rng.uniform(28, 40),
            ]
        ),
        1,
    )


def _fault(rng, cluster, kinds, longest_s):
    kind = rng.choices(list(kinds), [KINDS[kind] for kind in kinds])[0]
    victims = list(range(cluster.nodes))
    if kind in DEADLY:
        # one process lives through it all, so that leaks have time to show
        victims.remove(cluster.keeper)
    node = rng.choice(victims)
    other = rng.choice([other for other in range(cluster.nodes) if other != node])
    return Fault(
        kind=kind,
        at_s=round(rng.uniform(0, 6), 1),
        for_s=min(_duration(rng), longest_s),
        node=node,
        other=other,
        amount=rng.random(),
    )


def rounds_of(seed, cluster, kinds=None, longest_s=60.0, several=True):
    """Endless. kinds: only these."""
    rng = random.Random(f"rounds {seed}")
    kinds = [
        kind
        for kind in KINDS
        if (kinds is None or kind in kinds) and (cluster.runners or kind not in NEEDS_RUNNERS)
    ]
    while True:
        count = rng.choices([1, 2, 3], [6, 3, 1])[0] if several else 1
        faults = sorted(
            (_fault(rng, cluster, kinds, longest_s) for _ in range(count)),
            key=lambda fault: fault.at_s,
        )
        yield Round(quiet_s=round(rng.uniform(1, 5), 1), faults=faults)


def requests_of(seed, count):
    """[body of a chat completion without its model]; greedy ones and sampled ones."""
    rng = random.Random(f"requests {seed}")
    animals = rng.sample(
        [
            "fox",
            "cat",
            "bear",
            "duck",
            "mouse",
            "owl",
            "frog",
            "horse",
            "hen",
            "dog",
            "rabbit",
            "goat",
        ],
        count,
    )
    bodies = []
    for number, animal in enumerate(animals):
        body = {
            "messages": [{"role": "user", "content": f"Tell me a story about a {animal}."}],
            "max_tokens": rng.randint(60, 180),
            "temperature": 0,
            "seed": rng.randint(1, 10**6),
        }
        if number % 2:
            body |= {"temperature": 0.9, "top_p": 0.9}
        bodies.append(body)
    return bodies
