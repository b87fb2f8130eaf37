"""A hub, a registry and a server of files on this machine's own address, as their interfaces are documented:
the tree of a repository with LFS hashes, resolve with a redirect to another host, manifests and blobs, ranges,
ETag, 401, 429 with Retry-After. What goes wrong is asked for: see Faults.

It counts the bytes of bodies that it sent of files, and keeps every request's headers."""
import hashlib
import http.server
import json
import random
import re
import socket
import socketserver
import threading
import time

CHUNK, SLOW_CHUNK = 16 * 1024, 4 * 1024
OLLAMA_MODEL = "application/vnd.ollama.image.model"
OLLAMA_LAYERS = {"params": b'{"stop":["<end>"],"temperature":0.5}', "system": b"Be kind."}


KNOWN = {}


def sum_of(kind, data):
    """Its hash, computed once: who looks at the clock should not wait for it."""
    known = KNOWN.get((kind, id(data)))
    if not known:
        known = KNOWN[kind, id(data)] = (hashlib.new(kind, data).hexdigest(), data)  # so that its id stays its own
    return known[0]


class Faults:
    """What the server does wrong; all are off."""

    def __init__(self):
        self.cut = 0.0  # the chance that a body ends early
        self.wrong = 0.0  # the chance that a body has wrong bytes
        self.always_wrong = False
        self.wrong_at = None  # the next body with this byte of a file has it wrong
        self.turned_away = 0  # so many requests of files get 429 …
        self.retry_after = 1  # … with this
        self.expire_after = 0  # the second host's addresses are good for so many requests; 0: for all
        self.token = None  # who lacks it gets 401
        self.rate = 0  # bytes a second of each connection; 0: as fast as it goes
        self.ranges = True
        self.etag = True
        self.hashes = True
        self.odd_range = 0  # so many answers have another range than was asked for
        self.page_size = 1000


class Hub:
    """files: {"ORG/REPO": {"FILE.gguf": bytes}}; models: {"library/NAME": {"TAG": bytes}}."""

    def __init__(self, seed=1, address="127.0.0.1"):
        self.files, self.models, self.plain = {}, {}, {}
        self.faults = Faults()
        self.lock = threading.Lock()
        self.draw = random.Random(seed)
        self.sent = 0
        self.sent_to = {}  # the same by the client's address
        self.address = address
        self.requests = []  # (host's port, path, headers)
        self.first = self.start(redirect=True)
        self.second = self.start(redirect=False)
        self.url = f"http://{address}:{self.first.server_port}"
        other = "localhost" if address == "127.0.0.1" else address
        self.other_url = f"http://{other}:{self.second.server_port}"
        self.direct_left = []  # of each address of the second host

    def start(self, redirect, tls=None):
        """tls: an ssl.SSLContext."""
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                answer(hub, self, redirect)

            def log_message(self, *_):
                pass

        class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
            daemon_threads = True
            request_queue_size = 64

            def handle_error(self, request, address):
                pass  # a client that was killed

        server = Server((self.address, 0), Handler)
        if tls:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server

    def stop(self):
        for server in (self.first, self.second):
            server.shutdown()
            server.server_close()


def put(handler, status, body, headers=()):
    handler.send_response(status)
    for name, value in headers:
        handler.send_header(name, value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def put_json(handler, value, headers=()):
    put(handler, 200, json.dumps(value).encode(), [("Content-Type", "application/json"), *headers])


def put_tree(hub, handler, repo, page):
    entries = [{"type": "directory", "oid": "0" * 40, "size": 0, "path": "folder"},
               {"type": "file", "oid": "0" * 40, "size": 12, "path": "README.md"}]
    for path, data in sorted(hub.files[repo].items()):
        entry = {"type": "file", "oid": "1" * 40, "size": len(data), "path": path}
        if hub.faults.hashes:
            entry["lfs"] = {"oid": sum_of("sha256", data), "size": len(data), "pointerSize": 134}
        entries.append(entry)
    size = hub.faults.page_size
    more = []
    if (page + 1) * size < len(entries):
        more = [("Link", f'<{hub.url}/api/models/{repo}/tree/main?recursive=true&cursor={page + 1}>; rel="next"')]
    put_json(handler, entries[page * size:(page + 1) * size], more)


def ollama_layer(kind):
    data = OLLAMA_LAYERS[kind]
    return {"mediaType": f"application/vnd.ollama.image.{kind}", "digest": "sha256:" + sum_of("sha256", data),
            "size": len(data)}


def put_manifest(hub, handler, model, tag):
    data = hub.models[model][tag]
    layers = [{"mediaType": OLLAMA_MODEL, "digest": "sha256:" + sum_of("sha256", data), "size": len(data)},
              ollama_layer("params")]
    if tag == "tuned":
        layers.append({"mediaType": "application/vnd.ollama.image.adapter", "digest": "sha256:" + "3" * 64, "size": 20})
    if tag == "pictures":
        kinds = ("projector", "template", "license")
        layers += [ollama_layer("system")] + [{"mediaType": f"application/vnd.ollama.image.{kind}", "digest": "sha256:" + "5" * 64, "size": 20}
                   for kind in kinds]
    if tag == "tensors":
        layers = [{"mediaType": "application/vnd.ollama.image.tensor", "digest": "sha256:" + "4" * 64, "size": 20}] * 9
    if tag == "parts":
        layers = layers[:1] * 3
    put_json(handler, {"schemaVersion": 2, "layers": layers})


def spoil(hub, data):
    """A copy with one bit turned over."""
    out = bytearray(data)
    out[hub.draw.randrange(len(out))] ^= 1 << hub.draw.randrange(8)
    return bytes(out)


def send_body(hub, handler, data, start=0):
    faults = hub.faults
    end = len(data)
    with hub.lock:
        if faults.wrong_at is not None and start <= faults.wrong_at < start + end:
            spoiled = bytearray(data)
            spoiled[faults.wrong_at - start] ^= 1
            data, faults.wrong_at = bytes(spoiled), None
        if end > 1 and hub.draw.random() < faults.cut:
            end = hub.draw.randrange(1, end)
        if end > 1 and (faults.always_wrong or hub.draw.random() < faults.wrong):
            data = spoil(hub, data)
    if faults.rate:  # what waits in the kernel is lost with the client
        handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 * 1024)
    size = SLOW_CHUNK if faults.rate else CHUNK
    for at in range(0, end, size):
        chunk = data[at:min(at + size, end)]
        handler.wfile.write(chunk)
        with hub.lock:
            hub.sent += len(chunk)
            hub.sent_to[handler.client_address[0]] = hub.sent_to.get(handler.client_address[0], 0) + len(chunk)
        if faults.rate:
            time.sleep(len(chunk) / faults.rate)
    if end < len(data):
        handler.close_connection = True


def put_file(hub, handler, data, headers=()):
    faults = hub.faults
    headers = list(headers)
    if faults.etag:
        headers.append(("ETag", '"' + sum_of("md5", data) + '"'))
    wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", handler.headers.get("Range", "")) if faults.ranges else None
    if not wanted:
        handler.send_response(200)
        for name, value in [*headers, ("Content-Length", str(len(data)))]:
            handler.send_header(name, value)
        handler.end_headers()
        send_body(hub, handler, data)
        return
    start, end = int(wanted[1]), min(int(wanted[2]) + 1, len(data))
    if start >= len(data):
        put(handler, 416, b"", [("Content-Range", f"bytes */{len(data)}")])
        return
    with hub.lock:
        odd = faults.odd_range > 0 and start > 0
        faults.odd_range -= odd
    shift = 1 if odd else 0
    handler.send_response(206)
    for name, value in [*headers, ("Content-Length", str(end - start)),
                        ("Content-Range", f"bytes {start - shift}-{end - 1 - shift}/{len(data)}")]:
        handler.send_header(name, value)
    handler.end_headers()
    send_body(hub, handler, data[start - shift:end - shift], start - shift)


def turned_away(hub, handler):
    with hub.lock:
        if hub.faults.turned_away <= 0:
            return False
        hub.faults.turned_away -= 1
    put(handler, 429, b"", [("Retry-After", str(hub.faults.retry_after))])
    return True


def put_resolved(hub, handler, data, path, redirect):
    """The hub sends on to the host that has the bytes."""
    if turned_away(hub, handler):
        return
    if redirect:
        with hub.lock:
            hub.direct_left.append(hub.faults.expire_after or 1 << 30)
            number = len(hub.direct_left) - 1
        put(handler, 302, b"", [("Location", f"{hub.other_url}{path}?signature={number}"),
                                ("X-Linked-Etag", '"' + sum_of("sha256", data) + '"'),
                                ("X-Linked-Size", str(len(data)))])
        return
    number = int(handler.path.partition("signature=")[2])
    with hub.lock:
        hub.direct_left[number] -= 1
        expired = hub.direct_left[number] < 0
    if expired:
        put(handler, 403, b"expired")
        return
    put_file(hub, handler, data)


def answer(hub, handler, redirect):
    path, _, query = handler.path.partition("?")
    with hub.lock:
        hub.requests.append((handler.server.server_port, handler.path, dict(handler.headers)))
    token = hub.faults.token
    if token and redirect and handler.headers.get("Authorization") != f"Bearer {token}":
        return put(handler, 401, b"who are you?")
    tree = re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/main", path)
    if tree and tree[1] in hub.files:
        page = re.search(r"cursor=(\d+)", query)
        return put_tree(hub, handler, tree[1], int(page[1]) if page else 0)
    resolve = re.fullmatch(r"/([^/]+/[^/]+)/resolve/main/(.+)", path)
    if resolve and resolve[2] in hub.files.get(resolve[1], {}):
        return put_resolved(hub, handler, hub.files[resolve[1]][resolve[2]], path, redirect)
    manifest = re.fullmatch(r"/v2/([^/]+/[^/]+)/manifests/(.+)", path)
    if manifest and manifest[2] in hub.models.get(manifest[1], {}):
        return put_manifest(hub, handler, manifest[1], manifest[2])
    blob = re.fullmatch(r"/v2/([^/]+/[^/]+)/blobs/sha256:(.+)", path)
    for data in [*hub.models.get(blob[1], {}).values(), *OLLAMA_LAYERS.values()] if blob else ():
        if sum_of("sha256", data) == blob[2]:
            return put_resolved(hub, handler, data, path, redirect)
    if path in hub.plain:
        if turned_away(hub, handler):
            return None
        return put_file(hub, handler, hub.plain[path])
    return put(handler, 404, b"there is none")
