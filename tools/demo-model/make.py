#!/usr/bin/env python3
"""Makes models/demo.gguf from a seed: texts, tokenizer, training, export, check.

Runs in the root that packages.txt describes (`./dev train-demo`). What was done before is not done
again, so a run that was stopped goes on where it was; --fresh begins anew.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "medley" / "demo-model"

STEPS = 1800  # of twelve texts: 21,600 of those that data.py writes, each read once

ASKED = ["Tell me a story about a fox and a lantern.", "Write a story with a brave girl named Mia."]


def run(script, *arguments):
    subprocess.run([sys.executable, str(HERE / script), *map(str, arguments)], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=CACHE, help="folder for the texts and the checkpoint")
    parser.add_argument("--output", type=Path, default=REPOSITORY / "models" / "demo.gguf")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--fresh", action="store_true", help="drop what an earlier run has left")
    options = parser.parse_args()
    if options.fresh:
        shutil.rmtree(options.work, ignore_errors=True)
    if not (options.work / "train.npz").exists():
        run("data.py", options.work, "--seed", options.seed)
    run("train.py", options.work, "--seed", options.seed, "--steps", options.steps)
    run("export.py", options.work, options.output)
    samples = [word for asked in ASKED for word in ("--sample", asked)]
    run("check.py", options.output, "--heldout", options.work / "heldout.txt", *samples)


if __name__ == "__main__":
    main()
