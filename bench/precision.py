#!/usr/bin/env python3
"""What choosing types by measured loss gains: KL divergence of `medley convert --fit SIZE` against that of
`medley convert --to TYPE` in the same bytes, on the same text. The ratio is theirs: below 1 ours is nearer to the
original.

    bench/precision.py build/release/src/cli/medley models/demo.gguf … [--to q4_k] [--text FILE] [--context N]
"""
import argparse
import json
import pathlib
import subprocess
import tempfile


def run(*words):
    return json.loads(subprocess.run([*words, "--json"], check=True, capture_output=True).stdout)


def kl(told):
    mean = told["kl_mean"]
    return f"{mean['value']:.6f} ({mean['low']:.6f} to {mean['high']:.6f})"


def measure(options, model, folder):
    how = ["--devices", "cpu", "-t", str(options.threads)]
    how += ["--text", options.text] if options.text else []
    how += ["--context", str(options.context)] if options.context else []
    uniform, fit = folder / "uniform.gguf", folder / "fit.gguf"
    for path in (uniform, fit):
        path.unlink(missing_ok=True)
    plain = run(options.medley, "convert", model, "--to", options.to, "-o", str(uniform), "--max-kl", "1e9", *how)
    ours = run(options.medley, "convert", model, "--fit", str(plain["weight_bytes"]), "-o", str(fit), *how)
    assert ours["weight_bytes"] <= plain["weight_bytes"]
    ratio = ours["kl_mean"]["value"] / plain["kl_mean"]["value"]
    print(
        f"| {pathlib.Path(model).stem} | {plain['weight_bytes']} | {kl(plain)} | {ours['weight_bytes']} | {kl(ours)} "
        f"| {ratio:.2f} |",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("medley")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--to", default="q4_k")
    parser.add_argument("--text")
    parser.add_argument("--context", type=int)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    print(f"| model | bytes, --to {options.to} | its KL | bytes, --fit | its KL | ratio |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for model in options.models:
            measure(options, model, pathlib.Path(folder))


if __name__ == "__main__":
    main()
