"""A model's file is on one machine alone; its layers are copied in the background; that machine is
killed in mid-reply, and never comes back."""
import random
import shutil
import time

import draw
from harness import check, wait
from load import Reader, undisturbed
from modes import Kills
from world import MODEL

SPREAD_S = 90  # until every layer is on two disks
AFTER_S = 120  # until a reply that was under way is over


class Spares(Kills):
    """Three new machines each time. Any of them has the file, any of them founds the cluster, and
    either the one with the file computes alone, or two of the three together."""

    def go(self, count, seed):
        rng = random.Random(f"spares {seed}")
        self.nodes = [self.world.node(name) for name in draw.NAMES[:3]]
        self.requests = [body | {"model": MODEL} for body in self.requests]
        self.longest, self.over, self.wanted = [], [], None
        while len(self.longest) < count and not self.is_over(float("inf")):
            self.kill_the_holder(rng)
            self.begin_anew()

    def kill_the_holder(self, rng):
        holder, *others = rng.sample(self.nodes, 3)
        alone = rng.random() < 0.5
        self.found(rng.choice(self.nodes), holder, alone)
        self.wanted = self.wanted or undisturbed(others[0], self.requests)
        self.readers = [
            Reader(self.world, node, self.requests, self.wanted, rng.randrange(100), self.violation)
            for node in others
        ]
        reader, asked = self.readers[0], self.world.stages()
        streams, answer = self.a_reply_that_goes_on(reader, rng.randint(4, 30))
        begin = time.monotonic()
        holder.die()
        wait("the reply is over", lambda: reader.answer is not answer or None, AFTER_S)
        gaps = [end - start for start, end in reader.taken_gaps() if end > begin]
        self.longest.append(max(gaps, default=0))
        self.n_rounds += 1
        result = "right" if reader.streams > streams else "NOT RIGHT"
        self.check_streams()
        self.end_load()
        self.over += self.readers
        stages = [
            stage["node"]
            for stage in others[0].ask({"do": "status"})["instances"][0]["stages"]
        ]
        check(holder.name not in stages, f"{holder.name} is gone, and it runs on {stages}")
        self.world.tell(
            f"kill {len(self.longest)}: {holder.name}, on {asked}, after {answer.killed_at} "
            f"pieces; {result}, longest pause {self.longest[-1]:.2f} s; on {stages}"
        )

    def found(self, founder, holder, alone):
        """The cluster, the model placed, and every layer on two disks."""
        options = ["--transport", self.drawn.transport]
        options += [] if self.drawn.runners else ["--in-process"]
        for node in [founder] + [node for node in self.nodes if node is not founder]:
            fast = {"memory": "64MiB", "decode": "120MB/s", "flops": "12GFLOP/s"}
            slow = {"memory": "64MiB", "decode": "20MB/s", "flops": "2GFLOP/s"}
            tight = {"memory": "11MiB", "decode": "60MB/s", "flops": "2GFLOP/s"}
            keys = tight if not alone else fast if node is holder else slow
            words = ["--new"]
            if node is not founder:
                words = ["--peer", founder.address, "--join", founder.invite()]
            node.start(*words, *options, "--sim", self.world.sim(node.name, **keys))
            if node is founder:
                wait("it leads", lambda: founder.leader() == founder.name, 30)
            up = {other.name: "up" for other in self.nodes if other.process}
            founder.wait_until(up, 30)
        wait("all vote", lambda: founder.status()["cluster"]["voters"] == 3, 30)
        holder.medley("place", self.world.model, "--streams", "4", "-c", "256", seconds=90)
        holder.medley("move", "--off")
        wait("a loss is survived", self.is_spread, SPREAD_S)

    def is_spread(self):
        for node in self.nodes:
            status = node.ask({"do": "status"})
            found = status and status["instances"] and status["instances"][0].get("survives")
            if not found:
                return False
        return not self.world.problem()

    def begin_anew(self):
        for node in self.nodes:
            if node.is_running():
                node.finish()
            for path in node.state.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def report(self, command):
        self.readers = self.over
        super().report(command)


def spares(world, chosen, drawn):
    run = Spares(world, drawn, draw.requests_of(chosen.seed, 4))
    run.go(chosen.count, chosen.seed)
    return run
