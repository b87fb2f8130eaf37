#!/usr/bin/env python3
"""tools/release/install.sh with a bundle whose program is a script: what it installs, replaces and
removes, and what it refuses with nothing left behind."""
import hashlib
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile

INSTALL = pathlib.Path(__file__).resolve().parents[2] / "tools/release/install.sh"
ARCH = platform.machine()


def check(condition, text):
    if not condition:
        raise SystemExit(f"install.py: {text}")


class Download:
    """A folder as somebody downloads it."""

    def __init__(self, folder, version, arch=ARCH):
        self.folder = folder
        folder.mkdir()
        name = f"medley-{version}-linux-{arch}"
        stage = folder / name
        (stage / "bin").mkdir(parents=True)
        program = stage / "bin/medley"
        program.write_text(f"#!/bin/sh\necho medley {version}\n")
        program.chmod(0o755)
        (stage / "lib/medley").mkdir(parents=True)
        self.archive = folder / f"{name}.tar.gz"
        with tarfile.open(self.archive, "w:gz") as tar:
            tar.add(stage, name)
        shutil.rmtree(stage)
        shutil.copy(INSTALL, folder)
        self.write_sums()

    def write_sums(self):
        value = hashlib.sha256(self.archive.read_bytes()).hexdigest()
        (self.folder / "SHA256SUMS").write_text(f"{value}  {self.archive.name}\n")

    def install(self, prefix, *options, shims=None):
        path = f"{shims}:{os.environ['PATH']}" if shims else os.environ["PATH"]
        return subprocess.run(
            ["sh", self.folder / "install.sh", "--prefix", prefix, *options], text=True,
            capture_output=True, env=os.environ | {"PATH": path})


def says(prefix):
    return subprocess.run([prefix / "bin/medley"], capture_output=True, text=True).stdout.strip()


def refused(result, prefix, words):
    check(result.returncode != 0, f"installed, and should have said '{words}'")
    check(words in result.stderr, f"'{words}' is not in: {result.stderr}")
    left = [path for path in prefix.rglob("*") if not path.is_dir()] if prefix.exists() else []
    check(not left, f"left behind: {left}")


def installs(work):
    prefix = work / "with a space"
    for version in ("1.0.0", "1.1.0", "1.1.0"):
        shutil.rmtree(work / "one", ignore_errors=True)
        result = Download(work / "one", version).install(prefix)
        check(result.returncode == 0, result.stderr)
        check(says(prefix) == f"medley {version}", f"it says {says(prefix)}")
        check("only the checksum was checked" in result.stderr, result.stderr)
    left = sorted(path.name for path in (prefix / "lib/medley").iterdir())
    check(left == ["1.0.0", "1.1.0"], f"in lib/medley: {left}")
    result = Download(work / "two", "1.1.0").install(prefix, "--remove")
    check(result.returncode == 0 and not (prefix / "bin/medley").is_symlink(), result.stderr)
    check(not (prefix / "lib/medley").exists(), "its files are still there")


def refuses(work):
    prefix = work / "none"
    download = Download(work / "broken", "1.0.0")
    with open(download.archive, "r+b") as file:
        file.seek(50)
        file.write(b"?")
    refused(download.install(prefix), prefix, "is not what SHA256SUMS says")
    (download.folder / "SHA256SUMS").unlink()
    refused(download.install(prefix), prefix, "download it too")
    other = Download(work / "other", "1.0.0", arch="riscv64")
    refused(other.install(prefix, other.archive), prefix, "is for riscv64")
    refused(other.install(prefix), prefix, "no bundle for")
    refused(other.install(prefix, "--nothing"), prefix, "no option")
    refused(other.install(prefix, "there/is/none.tar.gz"), prefix, "there is no file")
    good = Download(work / "good", "1.0.0")
    for glibc, words in (("glibc 2.36", "has glibc 2.36, and the bundle needs 2.38"),
                         ("", "is not glibc")):
        shims = work / "shims"
        shims.mkdir(exist_ok=True)
        (shims / "getconf").write_text(f"#!/bin/sh\necho {glibc}\n")
        (shims / "getconf").chmod(0o755)
        refused(good.install(prefix, shims=shims), prefix, words)


def signatures(work):
    """Ours, somebody else's, none. Returns False where OpenSSH is not there."""
    if not shutil.which("ssh-keygen"):
        return False
    for name in ("ours", "theirs"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", work / name], check=True)
    signers = work / "signers"
    signers.write_text(f"releases@medley {(work / 'ours.pub').read_text()}")
    download = Download(work / "signed", "2.0.0")
    prefix = work / "signed here"
    refused(download.install(prefix, "--signers", signers), prefix, "is not signed")
    for key, good in (("theirs", False), ("ours", True)):
        (download.folder / "SHA256SUMS.sig").unlink(missing_ok=True)
        subprocess.run(["ssh-keygen", "-q", "-Y", "sign", "-f", work / key, "-n", "medley-release",
                        download.folder / "SHA256SUMS"], check=True, capture_output=True)
        result = download.install(prefix, "--signers", signers)
        if good:
            check(result.returncode == 0 and "signed by releases@medley" in result.stderr,
                  result.stderr)
        else:
            refused(result, prefix, "nobody whom")
    download.archive.write_bytes(b"other bytes")
    download.write_sums() # the signature is of the sums of before
    prefix = work / "never"
    refused(download.install(prefix, "--signers", signers), prefix, "is not good")
    return True


def main():
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        print("1..3")
        installs(work)
        print("ok 1 - installed, replaced, removed")
        refuses(work)
        print("ok 2 - refused, with the reason and nothing left")
        if signatures(work):
            print("ok 3 - signatures")
        else:
            print("ok 3 - signatures # SKIP ssh-keygen is not here")


if __name__ == "__main__":
    sys.exit(main())
