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
    "streams_64": ("64 streams, aggregate decode", "tok/s", "higher"),
    "spin_idle": ("decode, tg32", "tok/s", "higher"),
    "spin_busy": ("decode, tg32, beside a spinning process", "tok/s", "higher"),
    "split": ("decode, two CPU stages against one", "tok/s", "higher"),
    "pages": ("decode, tg48, large pages against small", "tok/s", "higher"),
    "first_token": ("start to first token", "s", "lower"),
    "first_token_cpu": ("processor time from start to end, one token", "s", "lower"),
    "memory": ("peak memory of the server", "MiB", "lower"),
    "cluster_decode": ("2 nodes, half of the layers each: decode", "tok/s", "higher"),
    "cluster_prefill": ("2 nodes, half of the layers each: prefill of 512", "tok/s", "higher"),
    "chain_decode": ("3 nodes, 2 ms between them: decode", "tok/s", "higher"),
    "nodes_prefill": ("2 nodes, a core each: prefill of 512", "tok/s", "higher"),
    "nodes_prefill_ratio": ("the same, median of the turns' ratios", "", "higher"),
    **{f"drafts_{kind}{more}": (f"3 nodes, 2 ms between them: {what}{said}", unit, "higher")
       for kind, what in {"same": "a sentence again and again", "edits": "the same with changes", "dice": "A and B by chance",
                          "free": "text that does not repeat"}.items()
       for more, said, unit in [("", "", "tok/s"), ("_ratio", ", median of the turns' ratios", "")]},
    "join_peer": ("start to joined, known peer", "s", "lower"),
    "join_peer_again": ("a member's start to its links, known peer", "s", "lower"),
    "join_mdns": ("start to joined, mDNS", "s", "lower"),
    "join_mdns_again": ("a member's start to its links, mDNS", "s", "lower"),
    "load": ("weights of 1.17 GB, while they come", "MB/s", "higher"),
    "load_whole": ("weights of 1.17 GB, from `place` to ready", "MB/s", "higher"),
    "rest_cpu": ("at rest, each node: processor", "% of a core", "lower"),
    "rest_sent": ("at rest, each node: sent", "B/s", "lower"),
    "rest_received": ("at rest, each node: received", "B/s", "lower"),
    "rest_memory": ("at rest, each node: resident", "MiB", "lower"),
    "rest_memory_own": ("at rest, each node: resident, not of files", "MiB", "lower"),
    "unlike": ("2 unlike devices, 8 streams, decode", "tok/s", "higher"),
    "unlike_forecast": ("the same, forecast", "tok/s", "higher"),
    "wire_1": ("bytes beyond the hidden states, 1 stream", "%", "lower"),
    "wire_8": ("bytes beyond the hidden states, 8 streams", "%", "lower"),
    "wire_prefill": ("bytes beyond the hidden states, prefill", "%", "lower"),
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
            if len(sides) == 1 or not ours:
                print(f"| {what}, {unit} | {model} | {spread(values)} | {'' if side == 'medley' else side} | | {better} |")
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
