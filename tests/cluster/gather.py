"""Three machines fetch a model from a hub together, each its own layers; wrong bytes count for
nothing; a machine that dies on the way is done without; what was fetched before a stop is kept.
All of it also for a model that lies in several files."""
import json
import os
import pathlib
import subprocess
import sys

from harness import PATIENCE, check, run, wait
from namespaces import ip

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "hub"))
from hub_server import Hub  # noqa: E402
from split_gguf import split  # noqa: E402

SYNTH = os.environ["MEDLEY_SYNTH"]
PLACE = ("-c", "256", "--streams", "1", "--json")
HEADER = 4 << 20  # what the first look at a header fetches, and so its asker twice
TOGETHER = "has the hub's SHA-256"


class Models:
    """A hub on the switch, with models of random weights, some 32 MB each."""

    def __init__(self, world):
        ip("address", "add", "10.77.0.254/24", "dev", "switch")
        self.world, self.hub = world, Hub(address="10.77.0.254")
        os.environ["HF_ENDPOINT"] = self.hub.url

    def add(self, repo, layers, files=1, **how):
        path = self.world.folder / f"{layers}.gguf"
        words = ["--embd", "256", "--ff", "512", "--heads", "8", "--kv-heads", "4", "--vocab", "4096"]
        subprocess.run(
            [SYNTH, "--type", "f16", "--layers", str(layers), *words, "--context", "512", path], check=True
        )
        parts = split(path.read_bytes(), files, **how) if files > 1 else [path.read_bytes()]
        tails = [f"-{i + 1:05}-of-{files:05}" if files > 1 else "" for i in range(files)]
        self.hub.files[f"org/{repo}"] = {f"{repo}-F16{tail}.gguf": part for tail, part in zip(tails, parts)}
        path.unlink()
        return f"hf:org/{repo}:F16", f"synthetic {layers}x256 f16"

    def count_anew(self):
        with self.hub.lock:
            self.hub.sent, self.hub.sent_to = 0, {}

    def size(self, repo):
        return sum(len(part) for part in self.hub.files[f"org/{repo}"].values())


def gathered(text):
    """What was said of it on the way."""
    return [
        json.loads(line)["gathering"] for line in text.splitlines() if line.startswith("{") and '"gathering"' in line
    ]


def is_half_there(hub, size):
    return hub.sent > HEADER + size // 2


def in_several_files(world, models, nodes):
    """Headers are looked at once by who asks, and come once to each: a file of keys alone is all header."""
    hub = models.hub
    laptop, tower, mini = nodes
    with world.step("a model in three files: each machine fetches its own layers of them"):
        word, name = models.add("parts", 25, files=3)
        size = models.size("parts")
        models.count_anew()
        said = gathered(laptop.medley("place", word, *PLACE).out)
        check(said and said[-1]["bytes"] == size, f"{said}")
        check(len(hub.sent_to) == 3, f"who fetched: {hub.sent_to}")
        check(max(hub.sent_to.values()) < 0.75 * size + 3 * HEADER, f"a share each: {hub.sent_to}")
        check(hub.sent < 1.2 * size + 3 * HEADER, f"nothing twice: {hub.sent} of {size}")
        models.count_anew()
        tower.medley("place", word, *PLACE)
        check(hub.sent < 3 * HEADER + 1000, f"what was gathered before is known: {hub.sent}")
    with world.step("it answers, and the files pulled as a whole are the same model"):
        text = laptop.chat("Hello.", model=name, max_tokens=8)
        n_models = len(laptop.status()["models"])
        laptop.medley("pull", word)
        laptop.medley("place", word, *PLACE)
        check(tower.chat("Hello.", model=name, max_tokens=8) == text, "another answer")
        check(len(laptop.status()["models"]) == n_models, f"{laptop.status()['models']}")
        laptop.medley("unload", name)
    with world.step("wrong bytes of one file count for nothing"):
        word, name = models.add("wrong", 26, files=3, first_is_empty=True)
        hub.faults.wrong_at = models.size("wrong") * 2 // 10
        tower.medley("place", word, *PLACE)
        check(tower.log_text().count("all of it is fetched again") == 2, "they were found")
        check(laptop.chat("Hello.", model=name, max_tokens=2) is not None, "it answers")
        laptop.medley("unload", name)
    with world.step("a machine that is killed on the way is done without"):
        word, name = models.add("lost", 27, files=2)
        models.count_anew()
        hub.faults.rate = 1 << 20
        place = laptop.popen("place", word, *PLACE, stdout=subprocess.PIPE, text=True)
        wait("half of it is there", lambda: is_half_there(hub, models.size("lost")), 60)
        before = laptop.log_text().count(TOGETHER)
        mini.kill()
        hub.faults.rate = 0
        wait("the others have all of it", lambda: laptop.log_text().count(TOGETHER) > before, 30)
        mini.start()
        out, _ = place.communicate(timeout=60 * PATIENCE)
        check(place.returncode == 0, f"it is placed: {out}")
        check("lost-F16-00001-of-00002.gguf: going on without mini" in laptop.log_text(), "without it")
        laptop.medley("unload", name)


def scenario(world):
    models = Models(world)
    hub = models.hub
    names = ("laptop", "tower", "mini")
    with world.step("three machines, no two of which have room for the whole model"):
        options = {name: ["--sim", world.sim(name, memory="20MiB", decode="400MB/s")] for name in names}
        nodes = laptop, tower, mini = world.cluster(*names, **options)
    with world.step("each fetches its own layers, all at once"):
        word, name = models.add("one", 24)
        size = models.size("one")
        said = gathered(laptop.medley("place", word, *PLACE).out)
        check(said and said[-1]["bytes"] == size, f"{said}")
        check(any("forecast_s" in line for line in said), f"a forecast: {said}")
        check(TOGETHER in laptop.log_text(), "the chain ended with the hub's hash")
        check(len(hub.sent_to) == 3, f"who fetched: {hub.sent_to}")
        check(max(hub.sent_to.values()) < 0.75 * size + HEADER, f"a share each: {hub.sent_to}")
        check(hub.sent < 1.2 * size + HEADER, f"nothing twice: {hub.sent} of {size}")
        models.count_anew()
        tower.medley("place", word, *PLACE)
        check(hub.sent < HEADER + 1000, f"what was gathered before is known: {hub.sent}")
    with world.step("it answers, and the file pulled as a whole is the same model"):
        text = laptop.chat("Hello.", model=name, max_tokens=8)
        laptop.medley("pull", word)
        models.count_anew()
        laptop.medley("place", word, *PLACE)  # it is here already
        check(hub.sent == 0, "nothing is fetched of what is here")
        check(tower.chat("Hello.", model=name, max_tokens=8) == text, "another answer")
        check(len(laptop.status()["models"]) == 1, f"{laptop.status()['models']}")
        laptop.medley("unload", name)
    with world.step("wrong bytes count for nothing: all is fetched again"):
        word, name = models.add("two", 23)
        hub.faults.wrong_at = models.size("two") * 3 // 10  # far from where shares meet
        tower.medley("place", word, *PLACE)
        check("all of it is fetched again" in tower.log_text(), "they were found")
        check("had wrong bytes before" in tower.log_text(), "and who had them")
        check(laptop.chat("Hello.", model=name, max_tokens=2) is not None, "it answers")
        laptop.medley("unload", name)
    with world.step("a machine that is killed on the way is done without"):
        word, name = models.add("three", 22)
        models.count_anew()
        hub.faults.rate = 1 << 20
        place = laptop.popen("place", word, *PLACE, stdout=subprocess.PIPE, text=True)
        wait("half of it is there", lambda: is_half_there(hub, models.size("three")), 60)
        mini.kill()
        hub.faults.rate = 0
        wait("the others have all of it", lambda: laptop.log_text().count(TOGETHER) == 2, 30)
        mini.start()
        out, _ = place.communicate(timeout=60 * PATIENCE)
        check(place.returncode == 0, f"it is placed: {out}")
        check("going on without mini" in laptop.log_text(), "without it")
        laptop.medley("unload", name)
    with world.step("what is there when the asker is killed is not fetched again"):
        word, name = models.add("four", 21)
        size = models.size("four")
        models.count_anew()
        hub.faults.rate = 1 << 20
        place = laptop.popen("place", word, *PLACE, stdout=subprocess.PIPE, text=True)
        wait("half of it is there", lambda: is_half_there(hub, size), 60)
        laptop.kill()
        place.communicate(timeout=60 * PATIENCE)
        hub.faults.rate = 0
        laptop.start()
        for node in nodes:
            node.wait_until({name: "up" for name in names}, 20)
        laptop.medley("place", word, *PLACE)
        check(hub.sent < 1.3 * size + 2 * HEADER, f"nothing twice: {hub.sent} of {size}")
        laptop.medley("unload", name)
    in_several_files(world, models, nodes)
    with world.step("what a hub does not have is said"):
        failed = laptop.medley("place", "hf:org/none", ok=False)
        check("org/none" in failed.err, f"{failed}")


run(scenario)
