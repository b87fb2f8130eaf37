"""A reader of /api/live (docs/monitoring.md): follows the view of a node in a thread."""
import http.client
import json
import threading
import time

from harness import API_PORT, PATIENCE, check_equal, wait


def merge(target, patch):
    """JSON Merge Patch, RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    target = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            target.pop(name, None)
        else:
            target[name] = merge(target.get(name), value)
    return target


class LiveView:
    """`view` is the view as it is now; `seen` counts what came, by kind; `bytes`, of all of it."""

    def __init__(self, node):
        self.node, self.view, self.events = node, None, []
        self.seen, self.bytes, self.problem, self.heard_at = {}, 0, None, 0
        self.connection = http.client.HTTPConnection("127.0.0.1", API_PORT, timeout=60 * PATIENCE)
        self.connection.sock = node.connect()
        self.connection.request("GET", "/api/live")
        self.response = self.connection.getresponse()
        check_equal(self.response.status, 200, f"{node.name}: /api/live")
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        kind = None
        try:
            for line in self.response:
                self.bytes += len(line)
                line = line.decode().rstrip("\n")
                if line.startswith("event: "):
                    kind = line[7:]
                elif line.startswith("data: ") and kind:
                    self._take(kind, json.loads(line[6:]))
                    kind = None
        except Exception as problem:  # noqa: BLE001 (told by whoever waits)
            self.problem = problem

    def _take(self, kind, data):
        self.seen[kind] = self.seen.get(kind, 0) + 1
        self.heard_at = time.monotonic()
        if kind == "snapshot":
            self.view = data
        elif kind == "change":
            self.view = merge(self.view, data)
        elif kind == "event":
            self.events.append(data)

    def node_named(self, name):
        nodes = (self.view or {}).get("nodes", {}).values()
        return next((node for node in nodes if node.get("name") == name), {})

    def device(self, node, device):
        return self.node_named(node).get("devices", {}).get(device, {})

    def wait(self, what, condition, seconds=15):
        return wait(
            f"{self.node.name}'s view: {what}",
            lambda: self.view is not None and condition(self),
            seconds,
        )

    def close(self):
        self.connection.close()
