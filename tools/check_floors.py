#!/usr/bin/env python3
"""Checks who includes whom.

1. A file of src/ includes only headers of its own room or of a lower floor (src/FLOORS, from the
ground up). 2. A third-party library is used in its own rooms only (LIBRARIES below), so that it can
be replaced there;
   the installed headers (include/medley) by the room that implements them.
3. Project headers are included by their path from src/ ("base/error.h"), never "../…".

`--self-test` runs the checks against a made-up tree in which each rule is broken once.
"""
import pathlib
import re
import sys
import tempfile

# Which rooms may include a library's headers. tests/, tools/ and bench/ may include any.
LIBRARIES = [
    (r"uv\.h|uv/.*", {"agreement", "api", "client", "hosting", "join", "mesh", "node", "public"}),
    (r"medley/.*\.h", {"client", "public"}),
    (r"ggml.*\.h|gguf\.h", {"engine", "gpu", "model"}),
    (r"libwebsockets.*", {"api"}),
    (r"nghttp2/.*", {"grpc"}),
    (r"curl/.*", {"client", "hub", "post"}),
    (r"yyjson\.h", {"api", "base", "cli", "client", "clusterfile", "gpu", "grammar", "grpc",
                     "hub", "library", "node", "report", "tools"}),
    (r"zlib\.h", {"api"}),
    (r"quickjs.*|.*/quickjs.*\.h", {"model"}),
    (r"pcre2\.h", {"model"}),
    (r"utf8proc\.h", {"model"}),
    (r"openssl/.*", {"join", "mesh", "trust"}),
    (r"sodium.*", {"audit", "join", "mesh", "trust"}),
    (r"avahi-.*", {"mesh"}),
    (r"raft.*\.h|sqlite3\.h", {"cluster"}),
    (r"png\.h|jpeglib\.h|jerror\.h|webp/.*", {"picture"}),
    (r"seccomp\.h|linux/landlock\.h", {"sandbox"}),
]
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def read_floors(path):
    """room -> floor, 0 is the ground."""
    floors = {}
    lines = [line.split("#")[0].split() for line in path.read_text().splitlines()]
    for floor, rooms in enumerate(rooms for rooms in lines if rooms):
        for room in rooms:
            floors[room] = floor
    return floors


def check_include(room, mark, header, src, folder, floors):
    """What is wrong with this include, or None."""
    if mark == "<":
        for pattern, rooms in LIBRARIES:
            if re.fullmatch(pattern, header) and room not in rooms:
                return f"<{header}> may be used in {', '.join(sorted(rooms)) or 'no room yet'} only"
        return None
    if ".." in header:
        return f'"{header}": write the path from src/'
    if (folder / header).exists() or not (src / header).exists():
        return None  # beside the file, or made by the build
    other = header.split("/")[0]
    if other not in floors:
        return f'"{header}": src/FLOORS does not know the room {other}'
    if other != room and floors[other] >= floors[room]:
        return f'"{header}" is not below {room}: see src/FLOORS'
    return None


def check(root):
    """The list of complaints about the tree below root."""
    src = root / "src"
    floors = read_floors(src / "FLOORS")
    complaints = []
    for path in sorted(src.rglob("*.[ch]")):
        room = path.relative_to(src).parts[0]
        where = path.relative_to(root)
        if room not in floors:
            complaints.append(f"{where}: src/FLOORS does not know the room {room}")
            continue
        text = path.read_text(encoding="utf-8")
        for match in INCLUDE.finditer(text):
            complaint = check_include(room, match[1], match[2], src, path.parent, floors)
            if complaint:
                line = text.count("\n", 0, match.start(2)) + 1
                complaints.append(f"{where}:{line}: {complaint}")
    return complaints


def self_test():
    files = {
        "FLOORS": "base # the ground\ngpu model\nengine\napi\n",
        "base/error.h": "",
        "base/bad.c": '#include "engine/stage.h"\n',  # upwards
        "gpu/gpu.h": '#include "base/error.h"\n',
        "model/bad.c": '#include "gpu/gpu.h"\n',  # sideways
        "model/good.c": '#include "base/error.h"\n#include <ggml.h>\n#include <pcre2.h>\n',
        "engine/stage.h": '#include "model/model.h"\n#include "gpu/gpu.h"\n',
        "model/model.h": "",
        "engine/bad.c": "\n#  include <uv.h>\n",  # a library out of its room
        "api/bad.c": '#include "../base/error.h"\n',
        "attic/bad.c": "",  # a room without a floor
    }
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = pathlib.Path(folder, "src", name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        complaints = check(pathlib.Path(folder))
    found = [complaint.split(":")[0] for complaint in complaints]
    expected = [f"src/{room}/bad.c" for room in ("api", "attic", "base", "engine", "model")]
    if found != expected:
        sys.exit(
            "expected complaints about\n  "
            + "\n  ".join(expected)
            + "\ngot\n  "
            + "\n  ".join(complaints)
        )
    print(f"{len(found)} broken files were found")


def main():
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        return
    complaints = check(pathlib.Path(__file__).resolve().parent.parent)
    print("\n".join(complaints) if complaints else "every include points down")
    sys.exit(bool(complaints))


if __name__ == "__main__":
    main()
