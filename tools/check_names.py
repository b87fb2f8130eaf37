#!/usr/bin/env python3
"""Checks that a name in src/ means one thing, so that grep, a debugger and a profile can tell them apart.

1. The tag of a struct, a union or an enum is defined in one file of src/.
2. No static function's name is one of the bare verbs of BARE: it carries its noun (`queue_take`, not `take`).
3. No static function's name is used in more than one file of src/, except in those of KERNELS, which define the
   same small functions for a body that they all include.

`--self-test` runs the checks against a made-up tree in which each rule is broken once.
"""
import collections
import pathlib
import re
import sys
import tempfile

BARE = set("""
    act add advance allocate answer append apply ask begin build cancel check choose clear close compare complete
    convert copy decide decode deliver describe dial dispatch divide do done draw emit encode end escape expand
    explain fail fill find finish follow forget free gather get give go grow handle hear init insert invoke join
    judge keep lend linger list load look lookup make map mark match measure meet merge mix move normalise note
    offer open pair parse place pop post predict prepare print publish pump push put read ready record refresh
    refuse release remember remove render replace report reserve retry run save say scan search see send serve set
    settle show sleep solve sort spawn split start step stop store submit sum sweep take tell test touch turn
    update verify wait wake walk watch weigh with without work works write
""".split())
# One body (…_kernel_body.h) is compiled for several sets of instructions.
KERNELS = re.compile(r"kernels/(attention|product|product_float)_(avx2|avx512|neon|plain)\.[ch]")

COMMENT_OR_TEXT = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)
TAG = re.compile(r"\b(?:struct|union|enum)\s+(?:__attribute__\s*\(\(.*?\)\)\s*)?([A-Za-z_]\w*)\s*\{")
STATIC = re.compile(r"^static\b[^;={}()]*?\b([A-Za-z_]\w*)\s*\([^;{}]*\)\s*\{", re.MULTILINE)


def blank(match):
    """As many lines, and nothing in them."""
    return "\n" * match[0].count("\n") or " "


def definitions(text):
    """(rule, name, line) of every tag and every static function that is defined in a file."""
    text = COMMENT_OR_TEXT.sub(blank, text)
    for rule, pattern in (("tag", TAG), ("static", STATIC)):
        for match in pattern.finditer(text):
            yield rule, match[1], text.count("\n", 0, match.start(1)) + 1


def check(root):
    """The list of complaints about the tree below root."""
    src = root / "src"
    places = {"tag": collections.defaultdict(dict), "static": collections.defaultdict(dict)}
    for path in sorted(src.rglob("*.[ch]")):
        name_in_src = path.relative_to(src).as_posix()
        for rule, name, line in definitions(path.read_text(encoding="utf-8")):
            if rule == "tag" or not KERNELS.fullmatch(name_in_src):
                places[rule][name].setdefault(f"src/{name_in_src}", line)
    complaints = []
    for name, files in places["tag"].items():
        if len(files) > 1:
            complaints += [f"{file}:{line}: the tag {name} is defined in {len(files)} files" for file, line in files.items()]
    for name, files in places["static"].items():
        for file, line in files.items():
            if name in BARE:
                complaints.append(f"{file}:{line}: {name}() does not say whose: let it begin with its noun")
            elif len(files) > 1:
                complaints.append(f"{file}:{line}: {len(files)} files have a static {name}(): let it begin with its noun")
    return sorted(complaints)


def self_test():
    files = {
        "gpu/one.c": "struct card {\n int n;\n};\nstatic int card_read(void)\n{\n return 0;\n}\n",
        "gpu/tag.c": "enum card { CARD_ONE };\n",
        "gpu/bare.c": "static inline struct card *\nfind(const char *(*name)(int), int n)\n{\n return 0;\n}\n",
        "mesh/twice.c": "static void on_timer_closed(void)\n{\n}\n",
        "node/twice.c": "static void on_timer_closed(void)\n{\n}\n",
        # none of these is a second definition
        "gpu/good.c": '/* struct card {\n static int run(void)\n{ */\nstatic const char *text = "struct card {";\n'
                      "static int run(void);\nstatic int (*find)(void) = 0;\nstruct card *cards;\nint run(void)\n{\n return 0;\n}\n",
        "kernels/product_avx2.c": "static inline int ints_dot(void)\n{\n return 0;\n}\n",
        "kernels/product_plain.c": "static inline int ints_dot(void)\n{\n return 0;\n}\n",
    }
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = pathlib.Path(folder, "src", name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        complaints = check(pathlib.Path(folder))
    found = [":".join(complaint.split(":")[:2]) for complaint in complaints]
    expected = ["src/gpu/bare.c:2", "src/gpu/one.c:1", "src/gpu/tag.c:1", "src/mesh/twice.c:1", "src/node/twice.c:1"]
    if found != expected:
        sys.exit("expected complaints about\n  " + "\n  ".join(expected) + "\ngot\n  " + "\n  ".join(complaints))
    print(f"{len(found)} bad names were found")


def main():
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        return
    complaints = check(pathlib.Path(__file__).resolve().parent.parent)
    print("\n".join(complaints) if complaints else "every name means one thing")
    sys.exit(bool(complaints))


if __name__ == "__main__":
    main()
