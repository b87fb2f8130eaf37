"""Debian's slowhttptest in its four modes: slow heads, slow bodies, many ranges, slow reading. The
server must answer its probes all the time. Only where the tool is (`./dev attack`)."""
import re
import shutil
import subprocess

from attack import LONG, check, run

SECONDS = 60 if LONG else 15
MODES = {
    "slow heads": ["-H", "-i", "5", "-u", "/health"],
    "slow bodies": ["-B", "-i", "5", "-s", "8192", "-t", "POST", "-u", "/tokenize"],
    "ranges": ["-R", "-t", "HEAD", "-a", "10", "-b", "3000", "-u", "/health"],
    "slow reading": ["-X", "-w", "10", "-y", "20", "-n", "5", "-z", "32", "-k", "3", "-u", "/metrics"],
}


def attack(server, words):
    """What the tool says about the service, once every few seconds."""
    *words, path = words
    command = ["slowhttptest", "-c", "1000", "-r", "200", "-p", "3", "-l", str(SECONDS), *words]
    done = subprocess.run(
        [*command, f"http://{server.authority()}{path}"],
        capture_output=True,
        text=True,
        timeout=3 * SECONDS,
        check=False,
    )
    text = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)
    return re.findall(r"service available: *(\w+)", text)


def scenario(world):
    if not shutil.which("slowhttptest"):
        world.say("there is no slowhttptest here: ./dev attack has it")
        return
    server = world.serve(descriptors=(1024, 1024))
    for name, words in MODES.items():
        with world.step(f"{name}: 1,000 connections for {SECONDS} s"):
            said = attack(server, words)
            world.say(f"{len(said)} times asked: {said.count('YES')} times available")
            check(said and set(said) == {"YES"}, f"it was not available: {said}")
    with world.step("it still works"):
        world.say(f"{server.memory_bytes() / 2**20:.0f} MiB, {server.descriptors()} descriptors")
        server.first_token_s()
        server.stop()


run(scenario)
