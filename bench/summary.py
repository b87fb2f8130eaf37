#!/usr/bin/env python3
"""Prints the medians of a run of ./dev bench, and Medley's ratio to what it is compared with."""
import collections
import json
import pathlib
import re
import statistics
import sys

# claim -> (what is measured, unit, "higher" or "lower" is better)
CLAIMS = {
    "decode": ("decode, tg128", "tok/s", "higher"),
    "prefill": ("prefill, pp512", "tok/s", "higher"),
    "streams": ("8 streams, aggregate decode", "tok/s", "higher"),
    "spin_idle": ("decode, tg32", "tok/s", "higher"),
    "spin_busy": ("decode, tg32, beside a spinning process", "tok/s", "higher"),
    "split": ("decode, two CPU stages against one", "tok/s", "higher"),
    "first_token": ("start to first token", "s", "lower"),
    "memory": ("peak memory of the server", "MiB", "lower"),
}


def processor():
    match = re.search(r"model name\s*:\s*(.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return match[1] if match else "unknown processor"


def read(path):
    """(claim, model) -> side -> values, in the order of the run."""
    results = collections.defaultdict(lambda: collections.defaultdict(list))
    for line in path.read_text().splitlines():
        entry = json.loads(line)
        results[entry["claim"], entry["model"]][entry["side"]].append(entry["value"])
    return results


def spread(values):
    return f"{statistics.median(values):.4g} ({min(values):.4g}–{max(values):.4g})"


def main():
    results = read(pathlib.Path(sys.argv[1]))
    if not results:
        return
    print(f"\n{processor()}; median (lowest–highest)\n")
    print("| claim | model | Medley | compared with | ratio | better |")
    print("|---|---|---|---|---|---|")
    medians = {}
    for (claim, model), sides in results.items():
        what, unit, better = CLAIMS[claim]
        medians[claim, model] = {side: statistics.median(values) for side, values in sides.items()}
        ours = sides.get("medley")
        for side, values in sides.items():
            if side == "medley" or not ours:
                continue
            ratio = statistics.median(ours) / statistics.median(values)
            print(f"| {what}, {unit} | {model} | {spread(ours)} | {side} {spread(values)} | {ratio:.2f}× | {better} |")
    for (claim, model), busy in medians.items():
        idle = medians.get(("spin_idle", model), {})
        if claim == "spin_busy":
            falls = ", ".join(f"{side} {idle[side] / busy[side]:.1f}×" for side in busy if side in idle)
            print(f"\nfall of decode beside a spinning process, {model}: {falls}")


if __name__ == "__main__":
    main()
