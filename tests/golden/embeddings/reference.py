"""Asks llama.cpp's server for the reference vectors of models/*.gguf and writes models/NAME.json.

    ./dev anchor python3 tests/golden/embeddings/reference.py
"""

import json
import pathlib
import subprocess
import sys
import time
import urllib.error
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
PORT = 18431
TEXTS = ["a", "The cat sat on the mat.", "Hello, world! Unbelievable caf\u00e9 in \u4e2d\u56fd; the quick brown fox "
         "jumped over the lazy dog, 42 times - and sat."]
STRINGS = ["", " ", "  leading", "trailing  ", "two  spaces", "UPPER lower", "caf\u00e9 CAF\u00c9 cafe\u0301", "stra\u00dfe",
           "\u03b1\u03b2 \u0391\u0392", "\u4e2d\u56fd\u4eba", "tab\there\nline", "\u00a0nbsp\u3000wide", "don't stop!?", "price: $4 + 5",
           "unbelievable unknown\u2603word", "zero\u200bwidth\u00adsoft", "\ud55c\uad6d", "\uff21\uff42 \ufb01n \u2026",
           "New York, New York", "emoji \U0001f600 x", "<mask> here [MASK]", "a" * 120, "1234567890", "-- ++ ..",
           "\u1e9e\u0130\u0131 \u01c5", "\uac00"]
QUERY, DOCUMENTS = "what is a cat", ["a lazy cat on the mat", "the dog jumped over", "world", "hello hello hello"]


def ask(path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}{path}", data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


class Server:
    def __init__(self, model, *flags):
        self.process = subprocess.Popen(
            ["llama-server", "-m", str(model), "--port", str(PORT), "-t", "1", "-c", "128", "-ub", "128", "-b", "128",
             "-np", "1", "-fa", "off", "-ctk", "f32", "-ctv", "f32", "--no-warmup", *flags],
            stdout=subprocess.DEVNULL, stderr=open(HERE / "models" / "server.log", "w"))

    def __enter__(self):
        for _ in range(300):
            try:
                ask("/health")
                return self
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.2)
            if self.process.poll() is not None:
                raise RuntimeError((HERE / "models" / "server.log").read_text()[-3000:])
        raise RuntimeError("llama-server does not come up")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def tokens_of(text, special=True):
    return ask("/tokenize", {"content": text, "add_special": special, "parse_special": False})["tokens"]


def rows_of(tokens):
    return ask("/embeddings", {"content": tokens, "embd_normalize": -1})[0]["embedding"]


def pair_of(name, document):
    """The tokens of a question and a document, as the server is documented to join them."""
    if name.startswith("qwen3"):
        return ask("/tokenize", {"content": f"<q>{QUERY}</q><d>{document}</d>", "add_special": False,
                                 "parse_special": True})["tokens"]
    bos, eos, separator = 0, 2, 2
    return [bos, *tokens_of(QUERY, False), eos, separator, *tokens_of(document, False), eos]


def make(model):
    name, out = model.stem, {}
    with Server(model, "--embeddings", "--pooling", "none"):
        out["strings"] = [{"text": s, "ids": tokens_of(s)} for s in STRINGS]
        out["texts"] = []
        for text in TEXTS:
            tokens = tokens_of(text)
            out["texts"].append({"text": text, "tokens": tokens, "rows": rows_of(tokens)})
    if name.endswith("-rank"):
        with Server(model, "--rerank"):
            pairs = [pair_of(name, document) for document in DOCUMENTS]
            answer = ask("/rerank", {"query": QUERY, "documents": DOCUMENTS})
            scores = {r["index"]: r["relevance_score"] for r in answer["results"]}
            if sum(map(len, pairs)) != answer["usage"]["prompt_tokens"]:
                raise RuntimeError(f"{name}: {pairs} are not {answer['usage']['prompt_tokens']} tokens")
            out["rank"] = {"query": QUERY, "documents": DOCUMENTS, "scores": [scores[i] for i in range(len(DOCUMENTS))],
                           "tokens": pairs}
    else:
        with Server(model, "--embeddings"):
            for text in out["texts"]:
                text["vector"] = rows_of(text["tokens"])[0]
    lines = [f'{json.dumps(key)}: ' + "[\n" + ",\n".join(json.dumps(item) for item in value) + "\n]"
             if isinstance(value, list) else f"{json.dumps(key)}: {json.dumps(value)}" for key, value in out.items()]
    (HERE / "models" / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
    (HERE / "models" / "server.log").unlink()
    print(name, [len(t["tokens"]) for t in out["texts"]], out.get("rank", {}).get("scores"))


if __name__ == "__main__":
    wanted = sys.argv[1:]
    for model in sorted((HERE / "models").glob("*.gguf")):
        if not wanted or model.stem in wanted:
            make(model)
