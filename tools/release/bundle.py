#!/usr/bin/env python3
"""Makes medley-VERSION-linux-ARCH.tar.gz from a build with -Dbundle=true: the program, libmedley,
ggml with its plugins, and every library they need but the C library's and the GPU's drivers.

The same sources and packages give the same bytes: names in order, one time (SOURCE_DATE_EPOCH), no
user. Beside the archive come install.sh and an SPDX list of what is inside.
"""
import argparse
import gzip
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tarfile

GLIBC_FLOOR = (2, 38)  # what Debian 13's packages need; install.sh asks for it

LINKER = {"x86_64": "/lib64/ld-linux-x86-64.so.2", "aarch64": "/lib/ld-linux-aarch64.so.1"}

# The C library's own, and the loader of Vulkan, which must be the one of the machine's drivers.
OF_THE_HOST = re.compile(
    r"^(ld-linux.*|lib(c|m|dl|rt|pthread|resolv|util|anl|mvec|nss_.*)|libvulkan)\.so(\.|$)")


class Flaw(Exception):
    """What stops the release, in one sentence."""


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def tool(arch, name):
    """A tool of binutils for a processor that may be another than this machine's."""
    return f"{arch}-linux-gnu-{name}"


def needed(path, arch):
    """{soname: file} of what the dynamic linker would load with a file."""
    found = {}
    for line in output(LINKER[arch], "--list", path).splitlines():
        match = re.match(r"\s*(\S+) => (\S+)", line)
        if match and match[2] != "not":
            found[match[1]] = match[2]
        elif match and not OF_THE_HOST.match(match[1]):
            raise Flaw(f"{path} needs {match[1]}, which is not here")
    return {name: file for name, file in found.items() if not OF_THE_HOST.match(name)}


def plugins_folder(arch):
    folders = sorted(pathlib.Path("/usr/lib").glob(f"{arch}-linux-gnu/ggml/backends*"))
    if len(folders) != 1:
        raise Flaw(f"ggml's plugins are in {len(folders)} folders: {folders}")
    return folders[0]


def newest_glibc(path, arch):
    found = re.findall(r"GLIBC_(\d+)\.(\d+)", output(tool(arch, "objdump"), "-T", path))
    return max(((int(major), int(minor)) for major, minor in found), default=(0, 0))


def check_no_debug_info(path, arch):
    """It names folders, and the build id that is left after stripping is a hash of it too."""
    if ".debug_info" in output(tool(arch, "objdump"), "-h", path):
        raise Flaw(f"{path} has debug info: configure the build with -Ddebug=false")


# ---- what goes in --------------------------------------------------------------------------------

def copy(source, target, executable=False):
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(os.path.realpath(source), target)
    target.chmod(0o755 if executable else 0o644)


def put_own(args, stage):
    """The program and the device library, without what only a debugger reads."""
    whole = args.out / "installed"
    shutil.rmtree(whole, ignore_errors=True)
    environment = os.environ | {"DESTDIR": str(whole.resolve())}
    subprocess.run(["meson", "install", "-C", args.build, "--no-rebuild", "--quiet"],
                   check=True, env=environment)
    program, = whole.glob("**/bin/medley")
    library, = whole.glob("**/libmedley.so.*.*.*")
    for file in (program, library):
        check_no_debug_info(file, args.arch)
    copy(program, stage / "bin/medley", executable=True)
    copy(library, stage / "lib" / library.name)
    for link in (".".join(library.name.split(".")[:3]), "libmedley.so"):
        (stage / "lib" / link).symlink_to(library.name)
    for header in whole.glob("**/include/medley/*.h"):
        copy(header, stage / "include/medley" / header.name)
    subprocess.run([tool(args.arch, "strip"), "--strip-unneeded", stage / "bin/medley",
                    stage / "lib" / library.name], check=True)
    shutil.rmtree(whole)


def put_libraries(stage, arch):
    """{file in the bundle: file it was copied from}"""
    origins = {}
    plugins = plugins_folder(arch)
    to = stage / "lib/medley/ggml" / plugins.name
    for plugin in sorted(plugins.glob("libggml-*.so")):
        copy(plugin, to / plugin.name)
        origins[to / plugin.name] = plugin
    event_library = pathlib.Path(f"/usr/lib/{arch}-linux-gnu/libwebsockets-evlib_uv.so")
    origins[stage / "lib/medley" / event_library.name] = event_library
    for path in [stage / "bin/medley", stage / "lib/libmedley.so", *origins]:
        for name, file in needed(origins.get(path, path), arch).items():
            origins.setdefault(stage / "lib/medley" / name, pathlib.Path(file))
    for target, source in origins.items():
        if not target.exists():
            copy(source, target)
    return origins


def put_documents(source, stage):
    """The documents of the source tree point into it, so the manual page stands for them."""
    copy(source / "LICENSE", stage / "share/doc/medley/LICENSE")
    for kind, place in (("man", "man/man1/medley.1"), ("zsh", "zsh/site-functions/_medley"),
                        ("bash", "bash-completion/completions/medley"),
                        ("fish", "fish/vendor_completions.d/medley.fish")):
        path = stage / "share" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(output(stage / "bin/medley", "completion", kind))
    copy(source / "models/demo.gguf", stage / "share/medley/demo.gguf")
    copy(source / "tools/release/install.sh", stage / "install.sh", executable=True)


# ---- whose it is ---------------------------------------------------------------------------------

def owner(file):
    """(package, version, architecture's source package) of Debian that a library comes from."""
    for path in (file, os.path.realpath(file), str(file).removeprefix("/usr"),
                 str(os.path.realpath(file)).removeprefix("/usr")):
        found = subprocess.run(["dpkg", "-S", path], capture_output=True, text=True)
        if found.returncode == 0:
            package = re.match(r"[^:,]+(:[a-z0-9]+)?(?=[:,])", found.stdout)[0]
            version, source = output(
                "dpkg-query", "-W", "-f", "${Version}\t${source:Package}\n", package,
            ).splitlines()[0].split("\t")
            return package.split(":")[0], version, source
    raise Flaw(f"no package owns {file}")


def put_licenses(origins, stage):
    """The packages of the bundle: {name: (version, source package)}; their licences go in."""
    packages = {}
    for file in origins.values():
        name, version, source = owner(file)
        packages[name] = (version, source)
    for name in packages:
        text = pathlib.Path("/usr/share/doc") / name / "copyright"
        if not text.exists():
            raise Flaw(f"{text} is missing, and nothing is given on without its licence")
        copy(text, stage / "share/doc/medley/licenses" / name)
    return packages


def spdx(name, version, created, packages):
    """An SPDX 2.3 document: Medley, and what Debian packages it carries."""
    def package(id_, what, version_, **more):
        return {"SPDXID": f"SPDXRef-{id_}", "name": what, "versionInfo": version_,
                "downloadLocation": "NOASSERTION", "filesAnalyzed": False} | more
    listed = [package("medley", "medley", version, licenseDeclared="Apache-2.0")]
    relations = [("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-medley")]
    for what, (version_, source) in sorted(packages.items()):
        id_ = re.sub(r"[^A-Za-z0-9.-]", "-", what)
        listed.append(package(id_, what, version_, sourceInfo=f"Debian's source package {source}",
                              licenseDeclared="NOASSERTION"))
        relations.append(("SPDXRef-medley", "CONTAINS", f"SPDXRef-{id_}"))
    return {
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
        "name": name, "documentNamespace": f"urn:medley:{name}:{created}",
        "creationInfo": {"created": created, "creators": ["Tool: tools/release/bundle.py"]},
        "packages": listed,
        "relationships": [{"spdxElementId": a, "relationshipType": kind, "relatedSpdxElement": b}
                          for a, kind, b in relations],
    }


# ---- the archive ---------------------------------------------------------------------------------

def check_symbols(stage, arch):
    """The newest version of the C library that a file in the bundle asks for."""
    newest, by = (0, 0), None
    for path in sorted(p for p in stage.rglob("*") if p.is_file() and not p.is_symlink()):
        if path.parts[len(stage.parts)] in ("bin", "lib"):
            found = newest_glibc(path, arch)
            newest, by = max((newest, by), (found, path.name), key=lambda pair: pair[0])
    if newest > GLIBC_FLOOR:
        raise Flaw(f"{by} needs glibc {newest[0]}.{newest[1]}, and the bundle promises "
                   f"{GLIBC_FLOOR[0]}.{GLIBC_FLOOR[1]}")
    return newest


def pack(stage, archive, epoch):
    def plain(info):
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        info.mtime = epoch
        return info
    with open(archive, "wb") as raw, \
            gzip.GzipFile("", "wb", compresslevel=9, fileobj=raw, mtime=0) as packed, \
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted([stage, *stage.rglob("*")]):
            tar.add(path, path.relative_to(stage.parent), recursive=False, filter=plain)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=pathlib.Path, required=True)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--arch", choices=sorted(LINKER), default=platform.machine(),
                        help="of the build; where it is another than this machine's, its programs "
                        "must start here all the same")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    args = parser.parse_args()
    epoch = int(os.environ["SOURCE_DATE_EPOCH"])
    created = output("date", "-u", "-d", f"@{epoch}", "+%Y-%m-%dT%H:%M:%SZ").strip()
    version = output("meson", "introspect", "--projectinfo", args.build)
    version = json.loads(version)["version"]
    name = f"medley-{version}-linux-{args.arch}"
    stage = args.out / name
    shutil.rmtree(args.out, ignore_errors=True)
    stage.mkdir(parents=True)
    put_own(args, stage)
    origins = put_libraries(stage, args.arch)
    put_documents(args.source, stage)
    packages = put_licenses(origins, stage)
    list_of = json.dumps(spdx(name, version, created, packages), indent=1) + "\n"
    (stage / "share/doc/medley/medley.spdx.json").write_text(list_of)
    (args.out / f"{name}.spdx.json").write_text(list_of)
    newest = check_symbols(stage, args.arch)
    pack(stage, args.out / f"{name}.tar.gz", epoch)
    copy(args.source / "tools/release/install.sh", args.out / "install.sh", executable=True)
    size = (args.out / f"{name}.tar.gz").stat().st_size
    print(f"{name}.tar.gz: {size / 1e6:.1f} MB, {len(origins)} libraries and plugins of "
          f"{len(packages)} packages, needs glibc {newest[0]}.{newest[1]}")


if __name__ == "__main__":
    try:
        main()
    except Flaw as flaw:
        sys.exit(f"bundle.py: {flaw}")
