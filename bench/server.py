#!/usr/bin/env python3
"""Starts an OpenAI-compatible server, drives it, prints one number, and stops it.

  server.py streams -- COMMAND...   tokens a second, of 8 streams (--count) together, while all of them decode
  server.py memory  -- COMMAND...   the server's peak resident memory in MiB after one long request

@PORT@ in the command becomes a port that is free. The same client drives every server. Token id 2 ends a text in the synthetic models; a bias keeps it away, so
that every stream has its full length.
"""
import argparse
import http.client
import json
import pathlib
import socket
import subprocess
import threading
import time

SYLLABLES = [c + v for c in "bdfghjklmnprstvwxyz" for v in "aeiou"]


def prompt(seed, words):
    """Made-up words, others for every seed, so that no server can reuse a prefix."""
    numbers = [(seed * 7919 + i * 104729) % 8999 for i in range(words)]
    return " ".join(SYLLABLES[n % 95] + SYLLABLES[n // 95 % 95] for n in numbers)


def get(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", path)
    return json.load(connection.getresponse())


class Stream(threading.Thread):
    """One streaming completion; remembers when each piece came."""

    def __init__(self, port, model, text, tokens):
        super().__init__()
        self.port = port
        self.body = {"model": model, "prompt": text, "max_tokens": tokens, "temperature": 0, "stream": True,
                     "stream_options": {"include_usage": True}, "logit_bias": {"2": -100}}
        self.times, self.tokens, self.error = [], 0, None

    def run(self):
        try:
            self.complete()
        except Exception as problem:  # told by the main thread, which would not see it otherwise
            self.error = problem

    def complete(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        connection.request("POST", "/v1/completions", json.dumps(self.body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            raise RuntimeError(f"status {response.status}: {response.read(500).decode(errors='replace')}")
        for line in response:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            if event.get("choices") and event["choices"][0].get("text"):
                self.times.append(time.monotonic())
            if event.get("usage"):
                self.tokens = event["usage"]["completion_tokens"]
        connection.close()


def run_streams(port, count, words, tokens, seed=0):
    model = get(port, "/v1/models")["data"][0]["id"]
    streams = [Stream(port, model, prompt(seed + i, words), tokens) for i in range(count)]
    for stream in streams:
        stream.start()
    for stream in streams:
        stream.join()
        if stream.error:
            raise SystemExit(f"a stream failed: {stream.error}")
        if not stream.times or stream.tokens < tokens:
            raise SystemExit(f"a stream ended early: {stream.tokens} of {tokens} tokens")
    return streams


def aggregate_decode(port, count):
    run_streams(port, 1, 8, 4, seed=1000)  # warm
    streams = run_streams(port, count, 24, 128)
    begin = max(stream.times[0] for stream in streams)
    end = min(stream.times[-1] for stream in streams)
    total = 0.0
    for stream in streams:
        # An event may carry more than one token (bytes of one character): count them by the mean.
        tokens_an_event = stream.tokens / len(stream.times)
        total += tokens_an_event * sum(begin < at <= end for at in stream.times)
    return total / (end - begin)


def peak_memory(port, pid):
    run_streams(port, 1, 500, 64)
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def wait_until_healthy(port, process):
    for _ in range(1200):
        if process.poll() is not None:
            raise SystemExit(f"the server ended at its start, with status {process.returncode}")
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise SystemExit("the server did not become healthy within two minutes")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["streams", "memory"])
    parser.add_argument("--count", type=int, default=8, help="streams")
    parser.add_argument("--log", default="/dev/null", help="where the server's own output goes")
    parser.add_argument("command", nargs="+")
    args = parser.parse_args()

    port = free_port()
    command = [word.replace("@PORT@", str(port)) for word in args.command]
    with open(args.log, "wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        wait_until_healthy(port, process)
        print(f"{aggregate_decode(port, args.count) if args.what == 'streams' else peak_memory(port, process.pid):.2f}")
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()


if __name__ == "__main__":
    main()
