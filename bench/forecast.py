#!/usr/bin/env python3
"""Compares what `medley run` forecasts with what it then measures, over sets of simulated devices.

Each configuration is a model, one to four devices of chosen speeds (docs/simulated-devices.md), and either the solver's
own split or a given one, good or bad. The model is computed for real, over as many stages; the devices only make it as
slow as their file says. They are chosen so much slower than this machine's CPU that their pace decides and not the
CPU's: where that fails, Medley says so; the configuration is run once more, and if it fails again the line is marked.

Forecast and measurement are those of `medley run --json`: until the first token (prefill), and from token to token
(decode). The error is forecast / measured - 1.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

WORDS = "The fox took the lantern and went down to the river where the old boat lay in the reeds . ".split()


def device(decode, flops, memory="8GiB", copy="10GB/s", launch="20us"):
    """Keys of a simulated device: MB/s, GFLOP/s."""
    return f"decode = {decode}MB/s\nflops = {flops}GFLOP/s\nmemory = {memory}\ncopy = {copy}\nlaunch = {launch}\n"


# model, words of the prompt, tokens to generate, context, split (None: the solver's), further words, devices
CONFIGURATIONS = [
    # the bundled model: 2.5 MB of weights, and a cache that grows to 0.9 MB
    ("demo", 96, 40, 512, None, "", [device(100, 0.5)]),
    ("demo", 280, 60, 512, None, "--kv f32", [device(60, 0.4)]),
    ("demo", 200, 40, 512, None, "", [device(150, 0.6), device(50, 0.2)]),
    ("demo", 200, 40, 512, "4,1", "", [device(150, 0.6), device(50, 0.2)]),
    ("demo", 200, 40, 512, "1,4", "", [device(150, 0.6), device(50, 0.2)]),  # the wrong way round
    ("demo", 280, 60, 512, "2,3", "--kv f32", [device(90, 0.3), device(120, 0.5)]),
    ("demo", 160, 30, 512, "2,2,1", "", [device(120, 0.4), device(80, 0.3), device(40, 0.2)]),
    ("demo", 160, 30, 512, "1,1,1,2", "", [device(60, 0.2), device(90, 0.2), device(120, 0.4), device(70, 0.3)]),
    ("demo", 160, 30, 512, "1,3,1", "", [device(80, 0.3, copy="10MB/s", launch="2ms"), device(80, 0.3, launch="1ms"),
                                         device(80, 0.3, copy="10MB/s")]),  # slow links
    ("demo", 120, 40, 512, "3,2", "--batch 32", [device(100, 0.4), device(60, 0.3)]),  # many small chunks
    # 1.1 billion weights, 4 bits: 557 MiB are read for a token
    ("synth-1b-q4_0", 22, 12, 512, None, "", [device(2500, 25)]),
    ("synth-1b-q4_0", 32, 12, 512, None, "", [device(2500, 20, "330MiB"), device(1200, 12)]),  # by memory
    ("synth-1b-q4_0", 32, 12, 512, None, "", [device(1500, 8, "260MiB"), device(2500, 16, "260MiB"),
                                              device(1000, 8, "400MiB")]),
    ("synth-1b-q4_0", 32, 12, 512, "8,8", "", [device(2500, 20), device(800, 8)]),  # equal shares of unlike devices
    ("synth-1b-q4_0", 32, 12, 512, "4,4,4,4", "", [device(2000, 8), device(1000, 8), device(2500, 8), device(1500, 6)]),
    ("synth-1b-q4_0", 32, 12, 512, "2,14", "", [device(2500, 16, copy="10MB/s"), device(1200, 10, copy="10MB/s")]),
    ("synth-1b-q4_0", 64, 12, 512, "12,4", "--kv f32", [device(2000, 20), device(1000, 10)]),
    # the same with 8 bits: twice as much to read
    ("synth-1b-q8_0", 16, 10, 512, None, "", [device(3000, 12)]),
    ("synth-1b-q8_0", 16, 10, 512, None, "", [device(3000, 9, "500MiB"), device(2000, 6, "900MiB")]),
    ("synth-1b-q8_0", 16, 10, 512, "5,6,5", "", [device(2500, 6), device(3000, 5, launch="5ms"), device(1500, 4)]),
]


def run(args, configuration, folder):
    model, n_words, n_predict, context, split, more, devices = configuration
    prompt, sim = folder / "prompt", folder / "sim.ini"
    prompt.write_text(" ".join(WORDS[i % len(WORDS)] for i in range(n_words)))
    sim.write_text("".join(f"[d{i}]\n{text}" for i, text in enumerate(devices)))
    path = args.models / f"{model}.gguf" if model != "demo" else args.demo
    command = [args.medley, "run", path, "--sim", sim, "--raw", "-f", prompt, "-n", n_predict, "-c", context, "--json"]
    command += ["--temp", "0", "-t", args.threads, "--no-governor", *more.split()]
    command += ["--split", split] if split else []
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300,
                          env={**os.environ, "MEDLEY_LOG": "warn"})
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}: {done.stderr}")
    return json.loads(done.stdout), "simulated too slowly" in done.stderr


def error(result, phase):
    return result[f"forecast_{phase}_tokens_per_s"] / result[f"{phase}_tokens_per_s"] - 1


def show(number, configuration, result, late):
    split = ",".join(str(stage["layers"]) for stage in result["stages"])
    chosen = "given" if configuration[4] else "solved"
    text = f"{number:2} {configuration[0]:14} {len(configuration[6])} device{'s' if len(configuration[6]) > 1 else ' '}"
    text += f" {split:8} {chosen:6} {len(result['prompt_tokens']):4} + {len(result['tokens']):2}"
    for phase in "prefill", "decode":
        text += f"  {result[f'forecast_{phase}_tokens_per_s']:7.2f} {result[f'{phase}_tokens_per_s']:7.2f}"
        text += f" {100 * error(result, phase):+6.1f} %"
    print(text + ("  the CPU was too slow" if late else ""), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--medley", type=pathlib.Path, default=pathlib.Path("build/release/src/cli/medley"))
    parser.add_argument("--models", type=pathlib.Path, default=pathlib.Path("build/models"))
    parser.add_argument("--demo", type=pathlib.Path, default=pathlib.Path("models/demo.gguf"))
    parser.add_argument("--threads", type=int, default=1, help="of each device")
    parser.add_argument("--only", type=int, nargs="*", help="numbers of configurations, from 1")
    parser.add_argument("--retries", type=int, default=1, help="of a configuration for which the CPU was too slow")
    parser.add_argument("--json", type=pathlib.Path, help="append one JSON line a configuration")
    args = parser.parse_args()
    chosen = args.only or range(1, len(CONFIGURATIONS) + 1)

    print(f"load of the machine before: {os.getloadavg()[0]:.1f}")
    print(f"{'':45}  prompt      prefill tok/s             decode tok/s\n{'':45} + answer  forecast measured error      "
          "forecast measured error")
    errors, n_late = {"prefill": [], "decode": []}, 0
    with tempfile.TemporaryDirectory() as folder:
        for number in chosen:
            configuration = CONFIGURATIONS[number - 1]
            for _ in range(1 + args.retries):
                result, late = run(args, configuration, pathlib.Path(folder))
                if not late:
                    break
            n_late += late
            show(number, configuration, result, late)
            for phase, values in errors.items():
                values.append(error(result, phase))
            if args.json:
                speeds = {key: result[key] for key in result if "_per_s" in key}
                line = {"configuration": number, "model": configuration[0], "stages": result["stages"], **speeds}
                with args.json.open("a") as file:
                    file.write(json.dumps({**line, "late": late}) + "\n")
    for phase, values in errors.items():
        sizes = [100 * abs(value) for value in values]
        print(f"{phase}: error median {statistics.median(sizes):.1f} %, worst {max(sizes):.1f} % "
              f"of {len(sizes)} configurations (targets: 5 %, 12 %)")
    if n_late:
        print(f"in {n_late} of them this machine's CPU was too slow to tell: is something else running?")


if __name__ == "__main__":
    sys.exit(main())
