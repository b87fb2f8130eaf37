#!/usr/bin/env python3
"""Starts a command and prints the seconds until its standard output holds more than the prompt.

A program that echoes the prompt has written its first token when more than the prompt has come. A
first token that is not text at all (half a character, say) shows as the end of the program. With
--side also the processor time of the whole program, which says something on a busy machine, too:
lines of a claim, a side and a value.
"""
import argparse
import os
import resource
import subprocess
import time


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompt", default="")
    parser.add_argument("--side")
    parser.add_argument("command", nargs="+")
    args = parser.parse_args()

    begin = time.monotonic()
    process = subprocess.Popen(args.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    text, took = b"", None
    while chunk := os.read(process.stdout.fileno(), 4096):
        text += chunk
        if took is None and text.strip().removeprefix(args.prompt.encode()).strip():
            took = time.monotonic() - begin
    ended = time.monotonic() - begin
    if process.wait() != 0:
        raise SystemExit(f"{args.command[0]} failed with status {process.returncode}")
    first = took if took is not None else ended
    if not args.side:
        print(f"{first:.4f}")
        return
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"first_token {args.side} {first:.4f}")
    print(f"first_token_cpu {args.side} {used.ru_utime + used.ru_stime:.4f}")


if __name__ == "__main__":
    main()
