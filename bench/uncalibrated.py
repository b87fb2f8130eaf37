#!/usr/bin/env python3
"""How far off a node's forecast is that nobody has calibrated, as it measures its devices by itself.

Each home is one machine: its real CPU, or simulated devices that do not tell their speed (`speed = measured` in
docs/simulated-devices.md) and that compute for real. A node is started with an empty state folder and a model. 30 s
after the start, and again when every device was measured finely (at most --limit seconds after the start), it answers a
few completions of one stream; each one's record says how fast it was decoded, and what was forecast. The error is
forecast / measured - 1. Nothing may compute beside it: devices are chosen slower than this machine's CPU, so that
their pace decides, but the CPU itself is as fast as it is left alone.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

EARLY_S = 30


def device(decode, flops, launch="20us"):
    return f"decode = {decode}MB/s\nflops = {flops}GFLOP/s\nmemory = 4GiB\nspeed = measured\nlaunch = {launch}\n"


HOMES = [
    ("the CPU of this machine", []),
    ("a card", [device(2000, 20)]),
    ("a slow card with slow launches", [device(1200, 10, "5ms")]),
    ("two unlike cards", [device(1800, 20), device(900, 8)]),
    ("three cards", [device(1500, 8), device(1500, 8), device(1000, 8)]),
]


class Node:
    def __init__(self, args, folder, devices):
        self.api, self.log = f"http://127.0.0.1:{args.port}", folder / "log"
        command = [args.medley, "up", "--new", "--no-discovery", "--listen", f"127.0.0.1:{args.port + 1}",
                   "--api", f"127.0.0.1:{args.port}", "--model", args.model, "--no-governor"]
        if devices:
            sim = folder / "sim.ini"
            sim.write_text("".join(f"[d{i}]\n{text}" for i, text in enumerate(devices)))
            command += ["--sim", sim]
        with self.log.open("wb") as log:
            environment = {**os.environ, "MEDLEY_STATE_DIR": str(folder / "state"), "MEDLEY_LOG": "info"}
            self.process = subprocess.Popen([str(word) for word in command], stdout=log, stderr=log, env=environment)
        self.began = time.monotonic()
        self.environment, self.medley = environment, str(args.medley)

    def place(self, model):
        """One stream and a short context: a forecast is of all streams of an instance with contexts half full."""
        subprocess.run([self.medley, "place", str(model), "--streams", "1", "-c", "512"], env=self.environment, check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def age(self):
        return time.monotonic() - self.began

    def get(self, path, body=None):
        data = json.dumps(body).encode() if body else None
        request = urllib.request.Request(self.api + path, data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=300) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise SystemExit(f"{path}: {error.read().decode()}") from error

    def measured(self, finely):
        lines = [line for line in self.log.read_text(errors="replace").splitlines() if line.endswith("GB/s")]
        return len([line for line in lines if ("in a hurry" in line) != finely])

    def errors(self, n_answers, n_tokens):
        model = self.get("/v1/models")["data"][0]["id"]
        errors = []
        for _ in range(n_answers):
            self.get("/v1/completions", {"model": model, "prompt": "The fox took the lantern", "max_tokens": n_tokens, "temperature": 0})
            record = self.get("/api/requests")["finished"][0]
            where = " ".join(f"{stage['device']}" for stage in record["stages"])
            forecast, measured = record["forecast_decode_tokens_per_s"], record["decode_tokens_per_s"]
            if forecast is None:
                print("    no forecast: a speed is still a guess")
                errors.append(1.0)
                continue
            print(f"    forecast {forecast:6.2f} tok/s, measured {measured:6.2f} on {where} ({100 * (forecast / measured - 1):+.1f} %)",
                  flush=True)
            errors.append(abs(forecast / measured - 1))
        return errors

    def stop(self):
        self.process.terminate()
        self.process.wait(30)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--medley", type=pathlib.Path, default=pathlib.Path("build/release/src/cli/medley"))
    parser.add_argument("--model", type=pathlib.Path, default=pathlib.Path("build/models/synth-1b-q4_0.gguf"))
    parser.add_argument("--port", type=int, default=8097)
    parser.add_argument("--limit", type=float, default=600, help="seconds after the start")
    parser.add_argument("--answers", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=12)
    parser.add_argument("--only", type=int, nargs="*", help="numbers of homes, from 1")
    args = parser.parse_args()
    print(f"load of the machine before: {os.getloadavg()[0]:.1f}")
    early, late = [], []
    for number in args.only or range(1, len(HOMES) + 1):
        name, devices = HOMES[number - 1]
        with tempfile.TemporaryDirectory() as folder:
            node = Node(args, pathlib.Path(folder), devices)
            try:
                time.sleep(2)
                node.place(args.model)
                time.sleep(max(0, EARLY_S - node.age()))
                print(f"{name}: {node.age():.0f} s after the start, {node.measured(False)} of {max(1, len(devices))} in a hurry")
                early += node.errors(args.answers, args.tokens)
                while node.measured(True) < max(1, len(devices)) and node.age() < args.limit:
                    time.sleep(1)
                print(f"{name}: {node.age():.0f} s after the start, {node.measured(True)} of {max(1, len(devices))} finely")
                late += node.errors(args.answers, args.tokens)
            finally:
                node.stop()
    for when, errors, target in ("after 30 s", early, 15), ("measured finely", late, 5):
        print(f"{when}: error median {100 * statistics.median(errors):.1f} %, worst {100 * max(errors):.1f} % "
              f"of {len(errors)} answers (target: median {target} %)")


if __name__ == "__main__":
    main()
