"""A model of Ollama's store: its parameters are the defaults of requests on every machine, also on one
that has no copy of the file."""
import hashlib
import json
import pathlib

from harness import check, check_equal, run, wait

NAME = "Medley Stories"
PROMPT = "Tell me a story about a cat."
PARAMS = {"temperature": 0, "stop": ["cat"], "num_predict": 30, "num_ctx": 300, "mirostat": 1}
SYSTEM = "You tell stories."


def put_store(world):
    """One model with its two layers beside it; its file's path."""
    store = pathlib.Path(world.folder) / "ollama"
    layers = {
        "model": pathlib.Path(world.model).read_bytes(),
        "params": json.dumps(PARAMS).encode(),
        "system": SYSTEM.encode(),
    }
    manifest = []
    (store / "blobs").mkdir(parents=True)
    for kind, data in layers.items():
        digest = hashlib.sha256(data).hexdigest()
        (store / "blobs" / f"sha256-{digest}").write_bytes(data)
        manifest.append(
            {
                "mediaType": f"application/vnd.ollama.image.{kind}",
                "digest": f"sha256:{digest}",
                "size": len(data),
            }
        )
    names = store / "manifests" / "registry" / "library" / "stories"
    names.mkdir(parents=True)
    (names / "latest").write_text(json.dumps({"layers": manifest}))
    return store / "blobs" / manifest[0]["digest"].replace(":", "-")


def ask(node, **more):
    body = {"model": NAME, "messages": [{"role": "user", "content": PROMPT}]} | more
    status, answer = node.http("POST", "/v1/chat/completions", body)
    check_equal(status, 200, f"{node.name}: {answer}")
    return answer["choices"][0]["message"]["content"], answer["choices"][0]["finish_reason"]


def scenario(world):
    with world.step("a model of Ollama's store is added on one of two machines"):
        options = {name: ["--sim", world.sim(name)] for name in ("laptop", "tower")}
        laptop, tower = nodes = world.cluster("laptop", "tower", **options)
        laptop.medley("add", str(put_store(world)))
        for node in nodes:
            wait(f"{node.name} knows it", lambda node=node: node.status()["models"])
        check("not used: mirostat" in laptop.log_text(), "the unknown parameter is not named")
    with world.step("its parameters are told"):
        status, shown = tower.http("POST", "/api/show", {"model": NAME})
        check_equal(status, 200, f"{shown}")
        check_equal(shown["system"], SYSTEM, "system")
        for line in ('stop                           "cat"', "num_predict                    30"):
            check(line in shown["parameters"].split("\n"), shown["parameters"])
    with world.step("requests begin with them, and say otherwise"):
        for node in nodes:
            text, why = ask(node)
            check(text and "cat" not in text and why == "stop", f"{node.name}: {text!r} ({why})")
            text, why = ask(node, stop=[], max_tokens=20)
            check("cat" in text and why == "length", f"{node.name}: {text!r} ({why})")
    with world.step("the context is the one that they ask for, and `run` says what it begins with"):
        check_equal(tower.status()["instances"][0]["context"], 300, "context")
        said = tower.medley("run", NAME, "-p", PROMPT, "--temp", "0.1", "-n", "4").err
        for words in ("num_ctx 300", f'system "{SYSTEM}"'):
            check(words in said, said)
        check("temperature" not in said, said)


run(scenario)
