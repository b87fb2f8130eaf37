"""The other two questions: what a kill in mid-reply costs the reader, and how often a bad network
is taken for a death."""
import random
import statistics
import time

import draw
from harness import PATIENCE, check, wait
from network import Weather
from soak import Soak


def share(values, part):
    return sorted(values)[min(int(len(values) * part), len(values) - 1)]


# ---- kills
# ------------------------------------------------------------------------------------------


class Kills(Soak):
    """One reader at one node; again and again a node that computes for it is killed in the middle
    of a reply."""

    def go(self, count, seed):
        rng = random.Random(f"kills {seed}")
        entry = self.nodes[self.drawn.keeper]
        self.begin_load([entry])
        reader, self.longest = self.readers[0], []
        while len(self.longest) < count and not self.is_over(float("inf")):
            victim = self.choose(rng, entry)
            streams, answer = self.a_reply_that_goes_on(reader, rng.randint(4, 45))
            begin = time.monotonic()
            victim.die()
            wait("the reply is over", lambda: reader.answer is not answer or None, 120)
            gaps = [
                end - start
                for start, end in reader.taken_gaps()
                if end > begin and start < begin + 60
            ]
            self.longest.append(max(gaps, default=0))
            self.n_rounds += 1
            result = "right" if reader.streams > streams else "NOT RIGHT"
            self.world.tell(
                f"kill {len(self.longest)}: {victim.name} after {answer.killed_at} pieces; "
                f"{result}, longest pause "
                f"{self.longest[-1]:.2f} s; on {self.world.stages()}"
            )
            victim.start()
            self.check_whole()

    def choose(self, rng, entry):
        found = {name for name, _ in self.world.stages()} - {entry.name}
        check(found, f"nobody but {entry.name} computes")
        name = rng.choice(sorted(found))
        return next(node for node in self.nodes if node.name == name)

    def a_reply_that_goes_on(self, reader, pieces):
        """Waits until a reply has so many pieces, and is not about to end."""
        end = time.monotonic() + 120 * PATIENCE
        while time.monotonic() < end:
            answer = reader.answer
            if answer and not answer.over and pieces <= answer.pieces < pieces + 4:
                reader.taken_gaps()
                answer.killed_at = answer.pieces
                return reader.streams, answer
            time.sleep(0.005)
        check(False, f"no reply of {pieces} pieces in 120 s")

    def report(self, command):
        found = self.longest
        if found:
            self.world.tell(
                f"{len(found)} kills: longest pause of the reply, s: median "
                f"{statistics.median(found):.2f}, 90 % {share(found, 0.9):.2f}, "
                f"99 % {share(found, 0.99):.2f}, max {max(found):.2f}; "
                f"{sum(one < 2 for one in found)} under 2 s"
            )
        super().report(command)


def kills(world, chosen, drawn):
    run = Kills(world, drawn, draw.requests_of(chosen.seed, 8))
    run.begin(["--no-moves"])
    run.go(chosen.count, chosen.seed)
    run.end_load()
    return run


# ---- false alarms
# -----------------------------------------------------------------------------------


class Alarms(Soak):
    """Nothing dies, but every path loses frames and delays them unevenly."""

    def counted(self):
        """(silent peers, links that went down, changes of the leader) by all logs; the epoch of the
        instance."""
        texts = [node.log_text() for node in self.nodes]
        lines = ["does not answer", " is down:", "this node leads"]
        status = self.nodes[0].ask({"do": "status"})
        return [sum(text.count(line) for text in texts) for line in lines] + [
            status["instances"][0]["epoch"]
        ]

    def go(self, chosen):
        weather = Weather(loss_ppm=chosen.loss * 1e4, jitter_us=chosen.jitter * 1e3)
        self.world.wire.change("weather", self.world.wire.everywhere(), weather)
        time.sleep(10)
        self.begin_load(self.nodes)
        self.before, begin = self.counted(), time.monotonic()
        while time.monotonic() - begin < 60 * chosen.minutes and not self.is_over(float("inf")):
            time.sleep(20)
            self.check_crashed()
            self.check_streams()
            self.take_gaps()
            for node in self.nodes:
                self.growth.take(node)
            found = [now - then for now, then in zip(self.counted(), self.before)]
            self.world.tell(
                f"{(time.monotonic() - begin) / 60:.1f} min: {found} (suspected, links down, "
                "leaders, epochs)"
            )
        self.minutes = (time.monotonic() - begin) / 60

    def report(self, command):
        found = [now - then for now, then in zip(self.counted_last, self.before)]
        self.world.tell(
            f"{self.minutes:.0f} minutes: {found[0]} times a peer was suspected, {found[1]} ends "
            f"of links, {found[2]} new leaders, "
            f"{found[3]} new placements"
        )
        if found[1] or found[3]:
            self.violation(
                "false alarm",
                f"{found[1]} ends of links, {found[3]} new placements, and nothing had died",
            )
        super().report(command)


def false_alarms(world, chosen, drawn):
    run = Alarms(world, drawn, draw.requests_of(chosen.seed, 8))
    run.begin(["--no-moves"])
    run.go(chosen)
    run.counted_last = run.counted()
    run.end_load()
    return run
