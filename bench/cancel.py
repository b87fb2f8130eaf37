#!/usr/bin/env python3
"""How long a device stays busy with a prompt whose client has gone.

    ./dev shell python3 bench/cancel.py MEDLEY MODEL.gguf [--rows 512] [--times 3]

Serves the model on the CPU. A prompt of as many tokens as a micro-batch has rows is timed to its
end; then others are left in their first half, and what is timed is a prompt of two tokens that
comes at once: it waits for the device. Tokens are drawn, so nothing of a prompt is reused.
"""
import argparse
import json
import os
import random
import re
import socket
import subprocess
import tempfile
import time


def serve(medley, model, state):
    command = [medley, "serve", model, "--alias", "model", "--devices", "cpu", "--context", "1024", "--slots", "2",
               "--api", "127.0.0.1:0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               env=dict(os.environ, MEDLEY_STATE_DIR=state))
    for line in process.stdout:
        found = re.search(r"127\.0\.0\.1:(\d+)", line)
        if found:
            return process, int(found.group(1))
    raise SystemExit(f"{medley} ended with status {process.wait()}")


def ask(port, draw, rows):
    """A request for one token, on its way."""
    tokens = [draw.randrange(300, 30000) for _ in range(rows)]
    body = json.dumps({"model": "model", "prompt": tokens, "max_tokens": 1, "stream": True}).encode()
    connection = socket.create_connection(("127.0.0.1", port))
    connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
                       b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    return connection


def answered(connection):
    """Seconds until all of the answer is here."""
    begin, answer = time.monotonic(), b""
    while piece := connection.recv(65536):
        answer += piece
    if b" 200 " not in answer[:20]:
        raise SystemExit(answer.decode(errors="replace"))
    return time.monotonic() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("medley")
    parser.add_argument("model")
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--times", type=int, default=3)
    args = parser.parse_args()
    draw = random.Random(1)
    with tempfile.TemporaryDirectory() as state:
        process, port = serve(args.medley, args.model, state)
        try:
            whole = answered(ask(port, draw, args.rows))
            print(f"a prompt of {args.rows} tokens: {whole:.2f} s; two tokens: {answered(ask(port, draw, 2)):.2f} s")
            for _ in range(args.times):
                left = ask(port, draw, args.rows)
                time.sleep(whole * draw.uniform(0.2, 0.4))
                left.close()
                print(f"two tokens behind one that was left: {answered(ask(port, draw, 2)):.2f} s")
        finally:
            process.terminate()
            process.wait()


if __name__ == "__main__":
    main()
