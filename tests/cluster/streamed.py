"""A model that fits on no machines together: its layers come from the machines' disks, the replies
are those of an undisturbed run, a disk that fails ends the requests under way and no more, and with
more memory it is placed anew. The same where somebody limits the memory of the weights, and where
two devices of a machine stream from its disk."""
import concurrent.futures
import os
import pathlib
import subprocess

from harness import chat_body, check, check_equal, run, wait

NAME = "Medley Stories"
QUESTION = "Tell me a story about a cat."


def stages(node):
    return node.status()["instances"][0]["stages"]


def spoil(file):
    """Blocks of it are lost, as when a disk fails; gives back what was there."""
    size = file.stat().st_size
    begin, end = size // 4 // 4096 * 4096, size * 3 // 4 // 4096 * 4096
    with file.open("rb") as from_file:
        from_file.seek(begin)
        lost = from_file.read(end - begin)
    subprocess.run(
        ["fallocate", "--punch-hole", f"--offset={begin}", f"--length={end - begin}", file],
        check=True,
    )
    return begin, lost


def mend(file, begin, lost):
    with file.open("r+b") as to_file:
        to_file.seek(begin)
        to_file.write(lost)
        to_file.flush()
        os.fsync(to_file.fileno())


def scenario(world):
    with world.step("a machine that has room for all of it"):
        roomy = world.node("roomy")
        roomy.start("--new", "--sim", world.sim("roomy", memory="64MiB"))
        wait("roomy founds a cluster", lambda: roomy.leader() == "roomy")
        placed = roomy.medley("place", world.model, "--streams", "2", "-c", "256")
        check("from its disk" not in placed.out, f"{placed.out}")
        expected = roomy.chat(QUESTION, model=NAME)
    with world.step("a limit of the weights' memory: the rest is streamed, what was asked is kept"):
        placed = roomy.medley("place", NAME, "--weights-memory", "2200KiB", "--time-limit", "2")
        check(" of them from its disk" in placed.out, f"{placed.out}")
        check("Kept, as asked for before: --context 256, --streams 2" in placed.out, f"{placed.out}")
        instance = roomy.status()["instances"][0]
        check_equal((instance["context"], instance["streams"]), (256, 2), "what was asked for")
        check_equal(instance["weights_memory_bytes"], 2200 << 10, "the limit")
        check_equal(roomy.chat(QUESTION, model=NAME), expected, "the reply")
        refused = roomy.medley("place", NAME, "--weights-memory", "100KiB", ok=False)
        check("not even a window of its layers fits" in refused.err, f"{refused.err}")
        roomy.end()
    with world.step("two devices of one machine stream from its disk at once"):
        keys = {"memory": "64MiB", "decode": "100MB/s"}
        devices = world.folder / "twins.ini"
        both = "".join(world.sim(name, **keys).read_text() for name in ("left", "right"))
        devices.write_text(both)
        twins = world.node("twins")
        twins.start("--new", "--sim", devices)
        wait("twins founds a cluster", lambda: twins.leader() == "twins")
        limits = ["--streams", "2", "-c", "256", "--weights-memory", "1000KiB"]
        twins.medley("place", world.model, *limits)
        streamed = [stage.get("n_streamed", 0) for stage in stages(twins)]
        check(len(streamed) == 2 and min(streamed) > 0, f"{stages(twins)}")
        with concurrent.futures.ThreadPoolExecutor() as pool:
            asked = [pool.submit(twins.chat, QUESTION, model=NAME) for _ in range(2)]
        check_equal([one.result() for one in asked], [expected] * 2, "the replies")
        twins.end()
    with world.step("one that is too small says how fast it would be from its disk"):
        small = world.node("small")
        file = world.folder / "own.gguf"
        with file.open("wb") as copy: # its blocks count from now on
            copy.write(pathlib.Path(world.model).read_bytes())
            copy.flush()
            os.fsync(copy.fileno())
        small.start("--new", "--sim", world.sim("small", memory="11.5MiB", decode="400MB/s"))
        wait("small founds a cluster", lambda: small.leader() == "small")
        small.medley("add", file)
        planned = small.medley("plan", file, "--streams", "2", "-c", "256", ok=None)
        check("layers from the disk of small; " in planned.out, f"{planned.out}")
        check(" more on small" in planned.out, f"{planned.out}")
    with world.step("is given the model all the same, and answers the same"):
        placed = small.medley("place", NAME, "--streams", "2", "-c", "256")
        check(" of them from its disk" in placed.out, f"{placed.out}")
        check(sum(stage.get("n_streamed", 0) for stage in stages(small)) > 0, f"{stages(small)}")
        check(small.status()["instances"][0]["forecast_decode_tokens_per_s"] > 0, "no forecast")
        for _ in range(2):
            check_equal(small.chat(QUESTION, model=NAME), expected, "the reply")
    with world.step("a disk that fails ends the request, which says so, and no more"):
        lost = spoil(file)
        status, answer = small.http("POST", "/v1/chat/completions", chat_body(QUESTION, model=NAME))
        check(status >= 500 and "own.gguf: reading weights" in str(answer), f"{status} {answer}")
        mend(file, *lost)
        check_equal(small.chat(QUESTION, model=NAME), expected, "the reply after that")
    with world.step("another machine joins: nothing is streamed any more"):
        large = world.node("large")
        code = small.invite()
        large.start(
            "--peer", small.address, "--sim", world.sim("large", memory="14MiB", decode="400MB/s")
        )
        wait("large listens to commands", large.status)
        large.medley("join", code, small.address)
        wait(
            "it is placed anew",
            lambda: all(not stage.get("n_streamed") for stage in stages(small)),
            90,
        )
        wait("it is ready", lambda: small.status()["instances"][0]["state"] == "ready")
        check_equal(small.chat(QUESTION, model=NAME), expected, "the reply of both")


run(scenario)
