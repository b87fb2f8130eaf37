"""A network whose every way from one node to another can be cut, slowed down and made lossy by
itself: bench/delay.c is the switch. CHAOS_SWITCH is that program."""
import collections
import os
import subprocess
import threading

from namespaces import Network, ip

Weather = collections.namedtuple(
    "Weather", "cut delay_us jitter_us loss_ppm", defaults=(False, 0, 0, 0)
)


class Port(Network):
    """A namespace with a TAP device on the switch."""

    def plug(self, there):
        with self.inside():
            ip("link", "set", "lan", "up" if there else "down")


class Switch:
    """The switch process, and who has asked for which weather on its paths. Ports count from 1."""

    def __init__(self, home, count, seed):
        self.count, self.wishes, self.lock = count, {}, threading.Lock()
        self.ports = [Port(home, number) for number in range(1, count + 1)]
        descriptors = [port.fd for port in self.ports]
        words = [os.environ["CHAOS_SWITCH"], "--seed", seed, *descriptors]
        self.process = subprocess.Popen(
            [str(word) for word in words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=descriptors,
            text=True,
        )
        if self.process.stdout.readline() != "ready\n":
            raise OSError("the switch could not be made: is /dev/net/tun there?")
        for port in self.ports:
            port.begin("lan")

    def change(self, key, paths, weather):
        """Somebody's wish for these (from, to); empty paths take the one of that key back."""
        with self.lock:
            before = self.wishes.pop(key, ([], None))[0]
            if paths:
                self.wishes[key] = (list(paths), weather)
            for path in sorted(set(before) | set(paths)):
                self._tell(path)

    def _tell(self, path):
        """The worst of what is wished for a path."""
        found = [weather for paths, weather in self.wishes.values() if path in paths] or [Weather()]
        words = [max(column) for column in zip(*found)]
        self.process.stdin.write(" ".join(str(int(word)) for word in (*path, *words)) + "\n")
        self.process.stdin.flush()
        if self.process.stdout.readline() != "ok\n":
            raise OSError("the switch has ended")

    def around(self, number):
        """All paths to and from a port."""
        others = [other for other in range(1, self.count + 1) if other != number]
        return [(number, other) for other in others] + [(other, number) for other in others]

    def everywhere(self):
        return [
            (a, b) for a in range(1, self.count + 1) for b in range(1, self.count + 1) if a != b
        ]

    def close(self):
        self.process.stdin.close()
        self.process.wait()
