"""Faults under load, round after round."""
import time

import draw
from harness import PATIENCE, Failure
from load import Reader, undisturbed
from watch import Growth, Pauses
from world import INFLICT, MODEL, found_cluster

WHOLE_S = 90  # after the last fault of a round has healed
STREAM_S = 30  # and then each reader hears something, unless its node has only just started
VIOLATIONS_MAX = 10
AIMED = 0.7  # of the faults, at nodes that compute for the model


class Soak:
    def __init__(self, world, drawn, requests):
        self.world, self.drawn, self.requests = world, drawn, requests
        self.violations, self.pauses, self.growth = [], Pauses(), Growth()
        self.readers, self.n_rounds, self.whole_s = [], 0, []

    def violation(self, kind, text):
        self.violations.append((kind, text))
        self.world.tell(f"VIOLATION {kind}: {text}")

    # ---- the load ----

    def begin(self, more=()):
        self.nodes = found_cluster(self.world, self.drawn, draw.NAMES[: self.drawn.nodes], more)
        self.world.tell(f"{self.drawn}: placed on {self.world.stages()}")
        self.requests = [body | {"model": MODEL} for body in self.requests]
        self.wanted = undisturbed(self.nodes[self.drawn.keeper], self.requests)
        self.world.tell(
            f"undisturbed: {len(self.wanted)} requests, "
            f"{sum(tokens for _, _, tokens in self.wanted)} tokens"
        )

    def begin_load(self, nodes):
        """One reader a node: as many as there are streams, at most."""
        self.readers = [
            Reader(self.world, node, self.requests, self.wanted, i * 3, self.violation)
            for i, node in enumerate(nodes[:4])
        ]

    def end_load(self):
        for reader in self.readers:
            reader.stopping = True
        for reader in self.readers:
            reader.join(120 * PATIENCE)
            if reader.is_alive():
                self.violation("stuck", f"the stream of {reader.node.name} does not end")

    # ---- a round ----

    def run_round(self, story):
        """All in this thread: a node ends with the thread that started it."""
        self.n_rounds += 1
        time.sleep(story.quiet_s)
        begin, heals = time.monotonic(), []
        faults = list(story.faults)
        while faults or heals:
            at, fault, heal = min(
                [(begin + fault.at_s, fault, None) for fault in faults] + heals,
                key=lambda entry: entry[0],
            )
            time.sleep(max(0, at - time.monotonic()))
            if heal:
                heals.remove((at, fault, heal))
                self.attempt(self.heal, fault, heal)
            else:
                faults.remove(fault)
                fault = self.aimed(fault)
                if heal := self.attempt(self.inflict, fault):
                    heals.append((time.monotonic() + fault.for_s, fault, heal))
        self.check_whole()

    def aimed(self, fault):
        """Most faults of one node strike where the model is."""
        if fault.amount > AIMED or fault.kind not in draw.OF_ONE_NODE:
            return fault
        holders = sorted({name for name, _ in self.world.stages()})
        found = [i for i, node in enumerate(self.nodes) if node.name in holders]
        if fault.kind in draw.DEADLY:
            found = [i for i in found if i != self.drawn.keeper]
        return fault._replace(node=found[fault.node % len(found)]) if found else fault

    def name_of(self, fault):
        whom = "all" if fault.kind in ("power", "lossy") else self.nodes[fault.node].name
        name = f"{fault.kind} {whom}"
        return name + (f" - {self.nodes[fault.other].name}" if fault.kind.startswith("cut") else "")

    def attempt(self, act, fault, *more):
        try:
            return act(fault, *more)
        except Failure as problem:
            self.violation("crash", str(problem))
        except OSError as problem:
            self.world.tell(f"{self.name_of(fault)}: {problem!r}")
        return None

    def inflict(self, fault):
        node = self.nodes[fault.node]
        if not node.is_running():
            return None  # another fault has it
        begin = time.monotonic()
        heal = INFLICT[fault.kind](self.world, node, fault)
        number = self.pauses.fault(begin, fault.kind, node.name)
        self.world.tell(f"{self.name_of(fault)}, for {fault.for_s} s ({fault.amount:.2f})")

        def heal_and_note():
            heal()
            self.pauses.over(number, time.monotonic())

        return heal_and_note

    def heal(self, fault, heal):
        self.world.tell(f"{self.name_of(fault)} is over")
        heal()

    def check_crashed(self):
        for node in self.nodes:
            if node.process and node.process.poll() is not None and not node.dead_on_purpose:
                self.violation(
                    "crash", f"{node.name} ended by itself, with {node.process.returncode}"
                )
                node.process = None
                node.start()

    def check_whole(self):
        begin = time.monotonic()
        self.check_crashed()
        while (problem := self.world.problem()) and time.monotonic() - begin < WHOLE_S * PATIENCE:
            time.sleep(0.2)
            self.check_crashed()
        if problem:
            self.violation("not whole", f"{WHOLE_S * PATIENCE:g} s after the last fault: {problem}")
        else:
            self.whole_s.append(time.monotonic() - begin)
            self.world.tell(f"whole after {self.whole_s[-1]:.1f} s, on {self.world.stages()}")
        self.check_streams()
        for node in self.nodes:
            if node.is_running():
                self.growth.take(node)
        self.take_gaps()

    def check_streams(self):
        """Every reader hears something within STREAM_S."""
        marks = [
            (reader, reader.streams, reader.answer and reader.answer.pieces)
            for reader in self.readers
        ]
        begin = time.monotonic()
        for reader, streams, pieces in marks:

            def moved(reader=reader, streams=streams, pieces=pieces):
                answer = reader.answer
                return reader.streams != streams or (
                    answer and answer.pieces and answer.pieces != pieces
                )

            while not moved() and time.monotonic() - begin < STREAM_S * PATIENCE:
                time.sleep(0.05)
            if not moved():
                why = f" (refused: {reader.refusal})" if reader.refused_since else ""
                self.violation(
                    "stuck",
                    f"the reader of {reader.node.name} hears nothing for {STREAM_S * PATIENCE:g} "
                    f"s{why}",
                )

    def take_gaps(self):
        for reader in self.readers:
            for begin, end in reader.taken_gaps():
                self.pauses.gap(reader.node.name, begin, end)

    def is_over(self, end):
        return time.monotonic() > end or len(self.violations) >= VIOLATIONS_MAX

    # ---- the report ----

    def report(self, command):
        # the address sanitizer keeps what is freed
        for problem in self.growth.problems(bool(self.world.clock_library)):
            self.violation("growth", problem)
        say = self.world.tell
        say(
            f"{self.n_rounds} rounds in {time.monotonic() - self.world.begin:.0f} s; "
            f"{sum(r.streams for r in self.readers)} streams "
            f"and {sum(r.tokens for r in self.readers)} tokens as undisturbed, "
            f"{sum(r.lost for r in self.readers)} ended with the node that was asked"
        )
        say("fault          count   longest pause of a reader elsewhere, s: median, max")
        for kind, count, median, most in self.pauses.table():
            say(f"{kind:14} {count:5} {median:8.2f} {most:8.2f}")
        if self.whole_s:
            say(
                "whole again after the last fault, s: median "
                f"{sorted(self.whole_s)[len(self.whole_s) // 2]:.1f}, max {max(self.whole_s):.1f}"
            )
        for name, count, rss, fds in self.growth.longest():
            say(
                f"{name}: longest life {count} samples, {rss[0]} to {rss[1]} MiB resident, "
                f"{fds[0]} to {fds[1]} descriptors"
            )
        for kind, text in self.violations:
            say(f"violation: {kind}: {text}")
        say(f"{len(self.violations)} violations; again: {command}")
