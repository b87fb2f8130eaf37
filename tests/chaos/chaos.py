"""Chaos on real processes: `./dev chaos --help`."""
import argparse
import os
import pathlib
import shutil
import sys
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cluster"))

import draw  # noqa: E402
import modes  # noqa: E402
import spares  # noqa: E402
from harness import Failure  # noqa: E402
from namespaces import NotAllowed, enter_namespaces  # noqa: E402
from soak import Soak  # noqa: E402
from world import ChaosWorld  # noqa: E402


def words():
    parser = argparse.ArgumentParser(
        prog="./dev chaos",
        description="Real nodes, faults drawn from a seed, readers that "
        "compare every stream with an undisturbed run. Exit status 1: something was wrong; the "
        "logs lie in build/chaos then.",
    )
    parser.add_argument(
        "mode", nargs="?", default="soak", choices=["soak", "kills", "spares", "false-alarms"]
    )
    parser.add_argument(
        "--seed", type=int, default=1, help="draws the cluster, the requests and the faults"
    )
    parser.add_argument("--minutes", type=float, default=5, help="of faults, the start not counted")
    parser.add_argument("--kinds", help="only these faults, with commas: " + ", ".join(draw.KINDS))
    parser.add_argument(
        "--longest", type=float, default=60, metavar="SECONDS", help="no fault lasts longer"
    )
    parser.add_argument("--nodes", type=int, choices=range(2, 6), help="else drawn")
    parser.add_argument(
        "--memory", metavar="MIB", help="of each device, in turn, else drawn: 11, 10.4/6.9 or 24"
    )
    parser.add_argument("--transport", choices=["tcp", "quic"], help="else drawn")
    parser.add_argument(
        "--runners", choices=["yes", "no"], help="devices in processes of their own, else drawn"
    )
    parser.add_argument("--count", type=int, default=200, help="kills, spares: so many")
    parser.add_argument("--loss", type=float, default=1, help="false-alarms: per cent of packets")
    parser.add_argument("--jitter", type=float, default=50, help="false-alarms: ms")
    return parser.parse_args()


def drawn_cluster(chosen):
    drawn = draw.cluster_of(chosen.seed)
    given = {
        "nodes": chosen.nodes,
        "memory": chosen.memory,
        "transport": chosen.transport,
        "runners": chosen.runners and chosen.runners == "yes",
    }
    drawn = drawn._replace(**{name: value for name, value in given.items() if value is not None})
    return drawn._replace(keeper=drawn.keeper % drawn.nodes)


def soak(world, chosen, drawn):
    kinds = chosen.kinds and [kind.strip() for kind in chosen.kinds.split(",")]
    unknown = set(kinds or []) - set(draw.KINDS)
    # the address sanitizer takes neither a preloaded library nor a limit
    if not os.environ.get("CHAOS_CLOCK_LIBRARY"):
        kinds = [kind for kind in kinds or draw.KINDS if kind not in ("clock", "memory")]
    if unknown:
        raise Failure(f"no such kind of fault: {', '.join(unknown)}")
    run = Soak(world, drawn, draw.requests_of(chosen.seed, 8))
    run.begin()
    run.begin_load(run.nodes)
    end = time.monotonic() + 60 * chosen.minutes
    for story in draw.rounds_of(chosen.seed, drawn, kinds, chosen.longest):
        if run.is_over(end):
            break
        run.run_round(story)
    run.end_load()
    return run


MODES = {
    "soak": soak,
    "kills": modes.kills,
    "spares": spares.spares,
    "false-alarms": modes.false_alarms,
}


def main():
    chosen = words()
    if chosen.mode == "spares":
        chosen.nodes = 3
    drawn = drawn_cluster(chosen)
    logs = pathlib.Path(os.environ["CHAOS_LOGS"]) / f"{chosen.mode}-{chosen.seed}"
    enter_namespaces()
    world = ChaosWorld(drawn.nodes, chosen.seed, logs)
    failed = True
    try:
        run = MODES[chosen.mode](world, chosen, drawn)
        for node in world.nodes:
            node.finish()
        run.report("./dev chaos " + " ".join(sys.argv[1:]))
        failed = bool(run.violations)
    except (Failure, RuntimeError, OSError):
        world.tell(traceback.format_exc())
    finally:
        world.clear()
    print(f"the logs: {logs}" if failed else "all as it should be", flush=True)
    if not failed and not os.environ.get("MEDLEY_KEEP"):
        shutil.rmtree(logs, ignore_errors=True)
    sys.exit(failed)


try:
    main()
except NotAllowed as problem:
    print(f"chaos: {problem}", file=sys.stderr)
    sys.exit(77)  # meson: skipped
