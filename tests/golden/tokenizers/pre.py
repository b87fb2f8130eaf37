"""Every rule that cuts text before merging, against llama.cpp's tokenizer.

    ./dev shell  python3 tests/golden/tokenizers/pre.py make FOLDER
    ./dev anchor python3 tests/golden/tokenizers/pre.py ask FOLDER
    ./dev shell  python3 tests/golden/tokenizers/pre.py compare FOLDER [MEDLEY=build/release/src/cli/medley]

`make` gives the vocabulary of bpe-qwen2.gguf, whose merges cross every boundary, each name of
src/model/pretokenizer_table.c, and joins the texts of its vectors in two ways. `ask` also says which
names libllama has and the table lacks. `compare` wants the same tokens.
"""

import json
import pathlib
import re
import struct
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
TABLE = HERE.parents[2] / "src" / "model" / "pretokenizer_table.c"
LIBRARY = "/usr/lib/x86_64-linux-gnu/libllama.so.0"


def names():
    source = TABLE.read_text()
    rows = re.findall(r"\n    \{((?:\"[^\"\n]*\"\s*)+),", source)
    return [name for row in rows for text in re.findall(r'"([^"]*)"', row) for name in text.split()]


def with_pre(name):
    data, key = (HERE / "bpe-qwen2.gguf").read_bytes(), b"tokenizer.ggml.pre"
    at = data.index(key) + len(key) + 4
    (length,) = struct.unpack_from("<Q", data, at)
    return data[:at] + struct.pack("<Q", len(name)) + name.encode() + data[at + 8 + length:]


def make(folder):
    vectors = json.loads((HERE / "bpe-qwen2.vectors.json").read_text())["vectors"]
    texts = []
    for vector in vectors:
        try:
            text = bytes.fromhex(vector["text"]).decode()
        except UnicodeDecodeError:
            continue
        if vector["tag"] != "special" and "\0" not in text and text not in texts:
            texts.append(text)
    for i, between in enumerate((" ", "\n\n")):
        (folder / f"{i}.txt").write_text(between.join(texts) + ".")
    for name in names():
        (folder / f"{name}.gguf").write_bytes(with_pre(name))


def llama_tokens(path, text):
    said = subprocess.run(["llama-tokenize", "-m", str(path), "-f", str(text), "--ids", "--no-bos", "--no-escape",
                           "--no-parse-special", "--log-disable"], capture_output=True)
    return json.loads(said.stdout.decode()) if said.returncode == 0 else None


def unknown_to_us(folder):
    """Words of the library that it takes for a name, and the table lacks."""
    known, path, found = set(names()), folder / "word.gguf", []
    data = pathlib.Path(LIBRARY).read_bytes()
    at = data.index(b"\0granite-embed-multi-311m\0")
    for word in sorted(set(re.findall(rb"(?<=\0)[a-z][a-z0-9._-]{2,24}(?=\0)", data[max(0, at - 6000):at + 6000]))):
        word = word.decode()
        path.write_bytes(with_pre(word))
        if word not in known and llama_tokens(path, folder / "0.txt") is not None:
            found.append(word)
    path.unlink()
    return found


def ask(folder):
    told = {}
    for path in sorted(folder.glob("*.gguf")):
        told[path.stem] = [llama_tokens(path, folder / f"{i}.txt") for i in (0, 1)]
    (folder / "told.json").write_text(json.dumps(told))
    print("libllama does not have:", ", ".join(n for n, t in told.items() if t[0] is None) or "none")
    print("the table lacks:", ", ".join(unknown_to_us(folder)) or "none")


def compare(folder, medley):
    told, bad = json.loads((folder / "told.json").read_text()), 0
    for name, expected in told.items():
        for i in (0, 1):
            said = subprocess.run([medley, "tokenize", str(folder / f"{name}.gguf")],
                                  stdin=(folder / f"{i}.txt").open("rb"), capture_output=True)
            got = json.loads(said.stdout) if said.returncode == 0 else said.stderr.decode().strip()
            if expected[i] is not None and got != expected[i]:
                bad += 1
                n = next((k for k, (a, b) in enumerate(zip(got, expected[i])) if a != b), -1)
                print(f"{name}, {i}: other tokens from {n} on: {got[n - 3:n + 6]}, libllama {expected[i][n - 3:n + 6]}")
    print(f"{len(told)} names, {bad} texts differ")
    return bad > 0


def main(what, folder, *more):
    folder = pathlib.Path(folder)
    folder.mkdir(exist_ok=True)
    if what == "make":
        return make(folder)
    if what == "ask":
        return ask(folder)
    return compare(folder, more[0] if more else "build/release/src/cli/medley")


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in ("make", "ask", "compare"):
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
