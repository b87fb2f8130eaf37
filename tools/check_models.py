#!/usr/bin/env python3
"""Holds the tables of docs/models.md against the code and the reference vectors.

1. Families: the rows of src/model/families*.c, with the golden models that each is compared by.
2. Weights' types: those of the golden models' tensors.
3. Pre-tokenizers: the rows of src/model/pretokenizer_table.c, with their vectors.
4. Chat templates: those of tests/golden/chat.json.

`--write` writes the tables anew; `--self-test` checks that a change of each is noticed.
"""
import json
import pathlib
import re
import struct
import sys

TABLE = re.compile(r"(<!-- (\w+): tools/check_models\.py --write -->\n).*?(<!-- end -->)", re.DOTALL)
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
TYPES = (
    "F32 F16 Q4_0 Q4_1 - - Q5_0 Q5_1 Q8_0 Q8_1 Q2_K Q3_K Q4_K Q5_K Q6_K Q8_K IQ2_XXS IQ2_XS "
    "IQ3_XXS IQ1_S IQ4_NL IQ3_S IQ2_S IQ4_XS I8 I16 I32 I64 F64 IQ1_M BF16 - - - TQ1_0 TQ2_0 "
    "- - - MXFP4 NVFP4 Q1_0 Q2_0"
).split()


class Gguf:
    """The single texts among a file's keys, and its tensors' types."""

    def __init__(self, path):
        self.bytes, self.at = path.read_bytes(), 8
        n_tensors, n_keys = self.take("<QQ")
        self.texts = dict(filter(None, (self.key() for _ in range(n_keys))))
        self.types = {TYPES[self.tensor()] for _ in range(n_tensors)}

    def take(self, form):
        values = struct.unpack_from(form, self.bytes, self.at)
        self.at += struct.calcsize(form)
        return values

    def text(self):
        (size,) = self.take("<Q")
        self.at += size
        return self.bytes[self.at - size : self.at].decode("utf-8", "replace")

    def key(self):
        name, (kind,) = self.text(), self.take("<I")
        if kind == 8:
            return name, self.text()
        if kind != 9:
            self.at += SIZES[kind]
            return None
        kind, count = self.take("<IQ")
        for _ in range(count if kind == 8 else 0):
            self.text()
        self.at += 0 if kind == 8 else SIZES[kind] * count
        return None

    def tensor(self):
        self.text()
        (n_dims,) = self.take("<I")
        self.at += 8 * n_dims
        kind, _ = self.take("<IQ")
        return kind


def names_of(names):
    return ", ".join(f"`{name}`" for name in sorted(names)) or "–"


def families_of(source):
    """name -> description, in the table's order."""
    rows = re.findall(r'\.name = "([^"]+)",\s*\.description = "([^"]+)"', source)
    assert len(rows) == source.count(".name = "), "a family without a description"
    return dict(rows)


def pretokenizers_of(source):
    """The names of each rule."""
    table = source[source.index("rules[] = {") :]
    rows = re.findall(r'^    \{((?:"[^"]*"\s*)+),', table, re.MULTILINE)
    return ["".join(re.findall(r'"([^"]*)"', row)).split() for row in rows]


def golden_models(golden):
    for folder in (golden / "models", golden / "more" / "models"):
        for path in sorted(folder.glob("*.json")):
            model = json.loads(path.read_text(encoding="utf-8"))
            yield path.stem, model["architecture"], folder / model["model"]
    for path in sorted((golden / "embeddings" / "models").glob("*.gguf")):
        yield path.stem, Gguf(path).texts["general.architecture"], path


def families_table(root):
    by_family = {}
    for name, family, _ in golden_models(root / "tests/golden"):
        by_family.setdefault(family, []).append(name)
    tables = ("families", "families_states", "families_encoders")  # as families.c lists them
    families = {}
    for table in tables:
        families |= families_of((root / f"src/model/{table}.c").read_text(encoding="utf-8"))
    for family in sorted(set(by_family) - set(families)):
        raise SystemExit(f"tests/golden has models of {family}, which src/model/families*.c lack")
    yield "| family | models | compared by |"
    yield "|---|---|---|"
    for name, description in families.items():
        yield f"| `{name}` | {description} | {names_of(by_family.get(name, []))} |"


def types_table(root):
    by_type = {}
    for name, _, path in golden_models(root / "tests/golden"):
        if path.exists():
            for kind in Gguf(path).types:
                by_type.setdefault(kind, []).append(name)
    yield "| type | golden models with it |"
    yield "|---|---|"
    for kind in sorted(by_type):
        names = by_type[kind]
        yield f"| {kind} | {names_of(names) if len(names) <= 8 else f'{len(names)} models'} |"


def pretokenizers_table(root):
    vectors = {}
    for path in sorted((root / "tests/golden/tokenizers").glob("bpe-*.gguf")):
        name = Gguf(path).texts.get("tokenizer.ggml.pre", "default")
        vectors.setdefault(name, []).append(path.stem)
    yield "| `tokenizer.ggml.pre`, one rule a row | vectors |"
    yield "|---|---|"
    for names in pretokenizers_of((root / "src/model/pretokenizer_table.c").read_text("utf-8")):
        found = [vector for name in names for vector in vectors.pop(name, [])]
        yield f"| {', '.join(f'`{name}`' for name in names)} | {names_of(found)} |"
    if vectors:
        raise SystemExit(f"vectors of pre-tokenizers that the table lacks: {sorted(vectors)}")


def templates_table(root):
    chat = json.loads((root / "tests/golden/chat.json").read_text(encoding="utf-8"))
    yield "| templates |"
    yield "|---|"
    yield f"| {names_of(template['name'] for template in chat['templates'])} |"


TABLES = {
    "families": families_table,
    "types": types_table,
    "pretokenizers": pretokenizers_table,
    "templates": templates_table,
}


def written(text, root):
    """The page with its tables made anew."""
    found = [match[2] for match in TABLE.finditer(text)]
    if sorted(found) != sorted(TABLES):
        raise SystemExit(f"docs/models.md has the tables {found}, not {list(TABLES)}")
    return TABLE.sub(
        lambda match: match[1] + "\n" + "\n".join(TABLES[match[2]](root)) + "\n\n" + match[3], text
    )


def self_test(text, root):
    """Every table's last entry is taken away, and missed."""
    for name in TABLES:
        start = text.index(f"<!-- {name}: ")
        end = text.index("<!-- end -->", start)
        at = text.rindex("`", start, end)
        changed = text[:at] + "x" + text[at:]
        if written(changed, root) == changed:
            raise SystemExit(f"a wrong {name} table passes")


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    page = root / "docs/models.md"
    text = page.read_text(encoding="utf-8")
    new = written(text, root)
    if "--write" in sys.argv:
        page.write_text(new, encoding="utf-8")
    elif "--self-test" in sys.argv:
        self_test(new, root)
    elif new != text:
        sys.exit("docs/models.md is not what the code has: tools/check_models.py --write")


main()
