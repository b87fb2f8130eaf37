#!/usr/bin/env python3
"""How slow this machine is to start a process, as a factor of at least 1.

    slowness.py MEDLEY

Tests start thousands of processes. On a virtual machine whose host has none of the processor's help
for it, that takes five times as long as elsewhere, and what waits for them has to wait so much
longer. The best of some starts counts, so that a busy moment does not.
"""
import subprocess
import sys
import time

USUAL_S = 0.012
MOST = 8


def start_s(medley):
    begin = time.monotonic()
    subprocess.run([medley, "--version"], stdout=subprocess.DEVNULL, check=True)
    return time.monotonic() - begin


def main():
    best = min(start_s(sys.argv[1]) for _ in range(20))
    print(f"{min(MOST, max(1, best / USUAL_S)):.1f}")


if __name__ == "__main__":
    main()
