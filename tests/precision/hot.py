#!/usr/bin/env python3
"""A simulated device that gets hot asks for lower precision: it is given where --allow-precision says
so, in the middle of a reply, which goes on; and never without.

    hot.py MEDLEY MODEL
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

TOKENS = 40
# It would pass its limit within a second of work.
DEVICE = """[hot]
memory = 64MiB
decode = 50MB/s
flops = 1GFLOP/s
power_idle = 5W
power_max = 100W
thermal_mass = 1J/K
thermal_resistance = 0.8K/W
limit = 80C
throttle = 100%
"""


def reply(medley, model, sim, *options):
    done = subprocess.run(
        [medley, "run", model, "--sim", sim, "-p", "Tell me a long story.", "-n", str(TOKENS), "--temp", "0",
         "--json", *options],
        capture_output=True, text=True, timeout=120, env=dict(os.environ, MEDLEY_LOG="info"))
    if done.returncode:
        sys.exit(f"status {done.returncode}: {done.stderr}")
    return json.loads(done.stdout), done.stderr


def main(medley, model):
    with tempfile.TemporaryDirectory() as folder:
        sim = pathlib.Path(folder) / "hot.ini"
        sim.write_text(DEVICE)
        answer, log = reply(medley, model, str(sim), "--allow-precision", "q4_k")
        print(log)
        assert "asks for lower precision" in log, "the device stayed cool"
        assert "weights are q4_k from now on" in log, "nobody answered it"
        assert len(answer["tokens"]) == TOKENS, answer
        answer, log = reply(medley, model, str(sim))
        print(log)
        assert "which nobody can give" in log and "weights are" not in log, "it was not allowed"
        assert len(answer["tokens"]) == TOKENS, answer


main(*sys.argv[1:])
