"""Network namespaces for tests (harness.py): one that all of a scenario lies in, and in it one for
each node, with a cable to the kernel's bridge `switch`.
"""
import contextlib
import ctypes
import os
import pathlib
import subprocess

MS_REMOUNT, MS_REC, MS_PRIVATE = 1 << 5, 1 << 14, 1 << 18
libc = ctypes.CDLL(None, use_errno=True)


class NotAllowed(Exception):
    """This machine does not let us make namespaces."""


def mount(what, where, kind, flags, data=None):
    encoded = [None if text is None else str(text).encode() for text in (what, where, kind)]
    if libc.mount(*encoded, ctypes.c_ulong(flags), data.encode() if data else None):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(where))


def enter_namespaces():
    kinds = os.CLONE_NEWNET | os.CLONE_NEWNS
    try:
        os.unshare(kinds)
    except OSError:
        uid, gid = os.getuid(), os.getgid()
        try:
            os.unshare(os.CLONE_NEWUSER | kinds)
            pathlib.Path("/proc/self/setgroups").write_text("deny")
            pathlib.Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
            pathlib.Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
        except OSError as problem:
            raise NotAllowed(f"no network namespaces here: {problem}") from problem
    mount("none", "/", None, MS_REC | MS_PRIVATE)


def ip(*words):
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def own_network():
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


class Network:
    """A namespace: alive as long as this object."""

    def __init__(self, switch, number):
        self.switch, self.address = switch, f"10.77.0.{number}"
        os.unshare(os.CLONE_NEWNET)
        self.fd = own_network()
        try:
            ip("link", "set", "lo", "up")
        finally:
            os.setns(switch, os.CLONE_NEWNET)

    @contextlib.contextmanager
    def inside(self):
        """This thread alone is in there; what it starts and opens meanwhile stays there."""
        os.setns(self.fd, os.CLONE_NEWNET)
        try:
            yield
        finally:
            os.setns(self.switch, os.CLONE_NEWNET)

    def begin(self, device):
        """Gives its device its address."""
        with self.inside():
            ip("address", "add", f"{self.address}/24", "dev", device)
            ip("link", "set", device, "up")
            ip("route", "add", "224.0.0.0/4", "dev", device)


class Cable(Network):
    """One that hangs on the kernel's bridge `switch`."""

    def __init__(self, switch, number):
        super().__init__(switch, number)
        self.port = f"port{number}"
        ip(
            "link",
            "add",
            "name",
            self.port,
            "type",
            "veth",
            "peer",
            "name",
            "cable",
            "netns",
            self._hold(),
        )
        self._holder.stdin.close()
        self._holder.wait()
        ip("link", "set", self.port, "master", "switch", "up")
        self.begin("cable")

    def _hold(self):
        """The id of a process in there: `ip` wants one."""
        with self.inside():
            self._holder = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
        return str(self._holder.pid)

    def plug(self, there):
        ip("link", "set", self.port, "up" if there else "down")
