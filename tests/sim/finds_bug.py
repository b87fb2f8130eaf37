#!/usr/bin/env python3
"""Runs `medley sim` with a fault planted in the product's code: it must report violated seeds.

A crash, a refused option or a clean run are no finding, so the exit status alone would not do.
"""
import re
import subprocess
import sys

medley, bug, *options = sys.argv[1:]
run = subprocess.run([medley, "sim", *(options or ["--seeds", "60"]), "--nodes", "5", "--bug", bug],
                     stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
violated = re.findall(r"^seed (\d+): ", run.stdout, re.MULTILINE)
if run.returncode != 1 or not violated:
    sys.exit(f"{bug} was not found (exit status {run.returncode}):\n{run.stdout}")
print(f"{bug}: seeds {', '.join(violated)}")
