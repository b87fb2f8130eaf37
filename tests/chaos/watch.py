"""What grows, and how long readers waited for which fault. Pure."""
import collections
import statistics

LEAST_SAMPLES = 12
RSS_GROWTH_BYTES = 12 << 20
FD_GROWTH = 6


def growth(samples):
    """By how much the medians of the quarters of a row rise from the first to the last, if they
    rise all the way; else 0. The first fifth is warming up, and not looked at."""
    samples = samples[len(samples) // 5 :]
    size = len(samples) // 4
    if len(samples) < LEAST_SAMPLES:
        return 0
    quarters = [statistics.median(samples[i * size : (i + 1) * size]) for i in range(4)]
    rises = all(before < after for before, after in zip(quarters, quarters[1:]))
    return quarters[-1] - quarters[0] if rises else 0


class Growth:
    """Samples of each life of each node, taken while the cluster is whole."""

    def __init__(self):
        self.rss, self.fds = collections.defaultdict(list), collections.defaultdict(list)

    def take(self, node):
        self.rss[node.name, node.life].append(node.memory_bytes())
        self.fds[node.name, node.life].append(node.descriptors())

    def problems(self, memory=True):
        for (name, life), samples in self.rss.items():
            if memory and growth(samples) > RSS_GROWTH_BYTES:
                yield f"memory of {name} (life {life}) grows: {[n >> 20 for n in samples]} MiB"
        for (name, life), samples in self.fds.items():
            if growth(samples) > FD_GROWTH:
                yield f"descriptors of {name} (life {life}) grow: {samples}"

    def longest(self):
        """[(name, number of samples, first and last MiB, first and last descriptors)] of the
        longest life of each node."""
        for name in sorted({name for name, _ in self.rss}):
            key = max(
                (key for key in self.rss if key[0] == name), key=lambda key: len(self.rss[key])
            )
            rss, fds = self.rss[key], self.fds[key]
            yield name, len(rss), (rss[0] >> 20, rss[-1] >> 20), (fds[0], fds[-1])


class Pauses:
    """The longest pause that any reader saw for each fault, by kind."""

    def __init__(self):
        self.faults = []  # [begin, end, kind, victim's name, longest pause]

    def fault(self, begin, kind, victim):
        """Returns what over() is told when it has healed."""
        self.faults.append([begin, float("inf"), kind, victim, 0.0])
        return len(self.faults) - 1

    def over(self, index, end):
        self.faults[index][1] = end

    def gap(self, reader, begin, end):
        """A pause belongs to the fault that began last before it ended, unless the reader's own
        node was struck meanwhile."""
        struck = [fault for fault in self.faults if fault[0] < end and fault[1] > begin]
        if any(victim == reader or kind == "power" for _, _, kind, victim, _ in struck):
            return
        for fault in reversed(self.faults):
            if fault[0] < end:
                fault[4] = max(fault[4], end - begin)
                return

    def table(self):
        """[(kind, count, median, max)]"""
        kinds = collections.defaultdict(list)
        for _, _, kind, _, longest in self.faults:
            kinds[kind].append(longest)
        return [
            (kind, len(found), statistics.median(found), max(found))
            for kind, found in sorted(kinds.items())
        ]
