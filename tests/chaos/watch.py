"""What grows, and how long readers waited for which fault. Pure."""
import collections
import statistics

LEAST_SAMPLES = 12
RSS_GROWTH_BYTES = 12 << 20
FD_GROWTH = 6


def growth(samples):
    """By how much the medians of the quarters of a row rise from the first to the last, if they rise all the way; else 0.
    The first fifth is warming up, and not looked at."""
    samples = samples[len(samples) // 5:]
    size = len(samples) // 4
    if len(samples) < LEAST_SAMPLES:
        return 0
    quarters = [statistics.median(samples[i * size:(i + 1) * size]) for i in range(4)]
    rises = all(before < after for before, after in zip(quarters, quarters[1:]))
    return quarters[-1] - quarters[0] if rises else 0


class Growth:
    """Samples of each life of each node, taken while the cluster is whole."""

    def __init__(self):
        self.rss, self.fds = collections.defaultdict(list), collections.defaultdict(list)

    def take(self, node):
        self.rss[node.name, node.life].append(node.memory_bytes())
        self.fds[node.name, node.life].append(node.descriptors())

    def problems(self):
        for (name, life), samples in self.rss.items():
            if growth(samples) > RSS_GROWTH_BYTES:
                yield f"memory of {name} (life {life}) grows: {[n >> 20 for n in samples]} MiB"
        for (name, life), samples in self.fds.items():
            if growth(samples) > FD_GROWTH:
                yield f"descriptors of {name} (life {life}) grow: {samples}"

    def longest(self):
        """[(name, number of samples, first and last MiB, first and last descriptors)] of the longest life of each node."""
        for name in sorted({name for name, _ in self.rss}):
            key = max((key for key in self.rss if key[0] == name), key=lambda key: len(self.rss[key]))
            rss, fds = self.rss[key], self.fds[key]
            yield name, len(rss), (rss[0] >> 20, rss[-1] >> 20), (fds[0], fds[-1])


class Pauses:
    """The longest pause that any reader saw for each fault, by kind."""

    def __init__(self):
        self.begun = []  # [time, kind, victim's name, longest pause]

    def fault(self, now, kind, victim):
        self.begun.append([now, kind, victim, 0.0])

    def gap(self, reader, begin, end):
        """A pause belongs to the fault that began last before it ended; of readers at the victim it is counted apart."""
        for entry in reversed(self.begun):
            if entry[0] < end:
                if entry[2] != reader or entry[1] == "power":
                    entry[3] = max(entry[3], end - max(begin, entry[0] - 1))
                return

    def table(self):
        """[(kind, count, median, max)]"""
        kinds = collections.defaultdict(list)
        for _, kind, _, longest in self.begun:
            kinds[kind].append(longest)
        return [(kind, len(found), statistics.median(found), max(found)) for kind, found in sorted(kinds.items())]
