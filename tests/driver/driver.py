#!/usr/bin/env python3
"""tools/dev/driver.sh on made-up hosts of several distributions' layouts: which of the host's
libraries the private root is shown and where, what is said, and how each lack is mended."""
import os
import pathlib
import shutil
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
KIND = {"x86_64": "x86-64", "aarch64": "AArch64"}.get(os.uname().machine)
PLACE = "/run/medley-driver/nvidia-570.86"
SCRIPT = """
set -euo pipefail
repo=$1 driver_host=$1/host driver_kept=$1/kept
. "$1/environment.sh"
. "$1/driver.sh"
driver_find 2>"$1/said"
for text in "${driver_notes[@]}"; do printf 'note %s\\n' "$text"; done
for text in "${driver_args[@]}"; do printf 'arg %s\\n' "$text"; done
"""


def check(condition, *text):
    if not condition:
        raise SystemExit(f"driver.py: {text}")


class Host:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.host = self.folder / "host"
        self.listed = []
        (self.folder / "kept").mkdir()
        for name in "environment.sh", "driver.sh":
            shutil.copy(ROOT / "tools/dev" / name, self.folder)

    def file(self, path, text=""):
        at = self.host / path
        at.parent.mkdir(parents=True, exist_ok=True)
        at.write_text(text)
        return at

    def link(self, path, target):
        at = self.host / path
        at.parent.mkdir(parents=True, exist_ok=True)
        at.symlink_to(target)

    def program(self, path, text):
        self.file(path, "#!/bin/sh\n" + text).chmod(0o755)

    def lists(self, name, path, kind=KIND):
        self.listed.append(f"\t{name} (libc6{',' + kind if kind else ''}) => {path}")

    def nvidia(self, version="570.86", nodes=True):
        self.file("sys/module/nvidia/version", version + "\n")
        for node in ("nvidiactl", "nvidia-uvm", "nvidia0") if nodes else ():
            self.file(f"dev/{node}")

    def icd(self, path, library="libGLX_nvidia.so.0"):
        self.file(path, '{"ICD": {\n  "library_path" : "%s",\n  "api_version": "1.4"}}\n' % library)

    def library(self, folder, name, version, soname):
        """A library, its soname, and the row of the linker's cache."""
        self.file(f"{folder}/{name}.{version}")
        self.link(f"{folder}/{soname}", f"{name}.{version}")
        self.lists(soname, f"/{folder}/{soname}")

    def find(self, user=None):
        if self.listed:
            self.program("sbin/ldconfig", "cat <<'END'\n" + "\n".join(self.listed) + "\nEND\n")
        words = ["bash", "-c", SCRIPT, "bash", str(self.folder)]
        if user and os.getuid() == 0:
            words = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *words]
        out = subprocess.run(words, capture_output=True, text=True, check=False)
        check(out.returncode == 0, out.stderr, out.stdout)
        rows = [line.split(" ", 1) for line in out.stdout.splitlines()]
        self.notes = [text for kind, text in rows if kind == "note"]
        args = [text for kind, text in rows if kind == "arg"]
        self.binds = {args[i + 2]: args[i + 1].removeprefix(str(self.host))
                      for i, word in enumerate(args) if word == "--ro-bind"}
        self.set = {args[i + 1]: args[i + 2] for i, word in enumerate(args) if word == "--setenv"}
        self.said = (self.folder / "said").read_text()


def all_libraries(host, folder, version="570.86"):
    for name, soname in (("libcuda.so", "libcuda.so.1"), ("libnvidia-ml.so", "libnvidia-ml.so.1"),
                         ("libGLX_nvidia.so", "libGLX_nvidia.so.0"),
                         ("libnvidia-opencl.so", "libnvidia-opencl.so.1")):
        host.library(folder, name, version, soname)
    host.file(f"{folder}/libnvidia-glcore.so.{version}")  # beside them, and not listed


def seen(host, folder, n=5):
    check(host.notes[0] == f"NVIDIA 570.86: {n} libraries of the host", host.notes)
    check(host.binds[f"{PLACE}/lib/libcuda.so.1"] == f"/{folder}/libcuda.so.570.86", host.binds)
    check(f"{PLACE}/lib/libnvidia-glcore.so.570.86" in host.binds, host.binds)
    check(host.set["LD_LIBRARY_PATH"] == f"{PLACE}/lib", host.set)
    check(host.set["VK_ADD_DRIVER_FILES"] == f"{PLACE}/nvidia_icd.json", host.set)
    text = (host.folder / "kept/nvidia-570.86/nvidia_icd.json").read_text()
    check(f'"library_path" : "{PLACE}/lib/libGLX_nvidia.so.0"' in text, text)
    check("1.4" in text, text)


def no_gpu(host):
    """A host without a GPU changes nothing."""
    host.file("dev/null")
    host.find()
    check(not host.notes and not host.binds and not host.set and not host.said, host.notes)


def fedora(host):
    host.nvidia()
    all_libraries(host, "usr/lib64")
    host.icd("usr/share/vulkan/icd.d/nvidia_icd.x86_64.json")
    host.icd("usr/share/vulkan/icd.d/nvidia_icd.i686.json")
    host.lists("libcuda.so.1", "/usr/lib/libcuda.so.1", kind="")  # of another processor
    host.library("usr/lib64", "libnvrtc.so", "12.8.61", "libnvrtc.so.12")  # of another version
    host.find()
    seen(host, "usr/lib64")
    check(len(host.notes) == 1, host.notes)
    check(f"{PLACE}/lib/libnvrtc.so.12" not in host.binds, host.binds)
    check(host.set["OCL_ICD_VENDORS"] == f"{PLACE}/opencl", host.set)
    check(host.set["MEDLEY_HOST_DRIVER"] == host.notes[0], host.set)
    check(host.said == f"medley: {host.notes[0]}\n", host.said)
    host.find()
    check(not host.said, host.said)  # once


def debian(host):
    """Absolute links, through /etc/alternatives and a folder of each driver's."""
    host.nvidia()
    all_libraries(host, "usr/lib/x86_64-linux-gnu/nvidia/current")
    host.listed = []
    for name in "libcuda.so.1", "libGLX_nvidia.so.0":
        host.link(f"usr/lib/x86_64-linux-gnu/{name}", f"/etc/alternatives/glx--{name}")
        host.link(f"etc/alternatives/glx--{name}", f"/usr/lib/nvidia/../x/{name}")
        host.lists(name, f"/lib/x86_64-linux-gnu/{name}")
    host.file("usr/lib/nvidia/here")
    host.link("usr/lib/x", "/usr/lib/x86_64-linux-gnu/nvidia/current")
    host.link("lib", "usr/lib")
    host.icd("etc/vulkan/icd.d/nvidia_icd.json")
    host.find()
    seen(host, "usr/lib/x86_64-linux-gnu/nvidia/current")


def nixos(host):
    host.nvidia()
    store = "nix/store/abc-nvidia-x11-570.86/lib"
    all_libraries(host, store)
    host.listed = []
    for name in "libcuda.so.1", "libGLX_nvidia.so.0":
        host.link(f"run/opengl-driver/lib/{name}", f"/{store}/{name}")
    host.icd("run/opengl-driver/share/vulkan/icd.d/nvidia_icd.x86_64.json",
             f"/{store}/libGLX_nvidia.so.0")
    host.find()
    seen(host, store)


def replaced(host):
    """Another version while the root stands: its folder has another name."""
    host.nvidia()
    all_libraries(host, "usr/lib")
    host.icd("usr/share/vulkan/icd.d/nvidia_icd.json")
    host.find()
    seen(host, "usr/lib")
    for file in (host.host / "usr/lib").iterdir():
        file.unlink()
    host.listed = []
    host.nvidia("575.51.03")
    all_libraries(host, "usr/lib", "575.51.03")
    host.find()
    check(host.notes == ["NVIDIA 575.51.03: 5 libraries of the host"], host.notes)
    check("nvidia-575.51.03" in host.set["VK_ADD_DRIVER_FILES"], host.set)
    check(all("570" not in path for path in host.binds), host.binds)


def mismatch(host):
    """The package was upgraded, and the machine not restarted."""
    host.nvidia()
    all_libraries(host, "usr/lib64", "575.51")
    host.find()
    check(len(host.notes) == 1 and "NVIDIA 570.86: " in host.notes[0] and
          "are 575.51: restart the machine" in host.notes[0], host.notes)
    check(not host.binds, host.binds)


def lacks(host):
    """No device files (nvidia-modprobe makes them), no Vulkan file, no CUDA, no ldconfig."""
    host.nvidia(nodes=False)
    host.find()
    check("none of its libraries" in host.notes[0], host.notes)
    host.library("usr/lib", "libnvidia-ml.so", "570.86", "libnvidia-ml.so.1")
    host.find()
    check("without CUDA" in host.notes[0] and "without Vulkan" in host.notes[0], host.notes)
    check("mend: sudo nvidia-modprobe -c 0 -u" in host.notes[1], host.notes)
    host.program("usr/bin/nvidia-modprobe", f"touch {host.host}/dev/nvidiactl\n"
                 f"touch {host.host}/dev/nvidia-uvm\n")
    (host.host / "dev").mkdir()
    host.find()
    check(len(host.notes) == 1, host.notes)


def nonsense(host):
    """Links that go in circles, a version that is none."""
    host.file("sys/module/nvidia/version", "../../etc\n")
    host.find()
    check(not host.notes, host.notes)
    host.nvidia()
    host.link("usr/lib/libcuda.so.1", "libcuda.so.2")
    host.link("usr/lib/libcuda.so.2", "libcuda.so.1")
    host.lists("libcuda.so.1", "/usr/lib/libcuda.so.1")
    host.find()
    check("none of its libraries" in host.notes[0], host.notes)


def amd_and_intel(host):
    for number, vendor in (128, "0x1002"), (129, "0x8086"):
        host.file(f"dev/dri/renderD{number}").chmod(0o666 if number == 128 else 0)
        host.file(f"sys/class/drm/renderD{number}/device/vendor", vendor + "\n")
    host.file("dev/kfd")
    os.chmod(host.folder, 0o777)
    os.chmod(host.folder / "kept", 0o777)
    host.find(user=65534)
    check("AMD: /dev/dri/renderD128, by the root's own Mesa" in host.notes, host.notes)
    check("Intel: /dev/dri/renderD129, by the root's own Mesa" in host.notes, host.notes)
    refused = [note for note in host.notes if "no permission to use /dev/dri/renderD129" in note]
    check(len(refused) == 1 and "mend: sudo " in refused[0], host.notes)
    check(not host.binds, host.binds)


def wsl(host):
    host.file("dev/dxg")
    host.find()
    check("wsl --update" in host.notes[0], host.notes)
    for name in "libcuda.so.1", "libdxcore.so":
        host.file(f"usr/lib/wsl/lib/{name}")
    host.find()
    check(host.notes == ["WSL2: 2 libraries of the host, for CUDA alone"], host.notes)
    check(host.binds == {"/usr/lib/wsl": "/usr/lib/wsl"}, host.binds)
    check(host.set["LD_LIBRARY_PATH"] == "/usr/lib/wsl/lib", host.set)


CASES = [no_gpu, fedora, debian, nixos, replaced, mismatch, lacks, nonsense, amd_and_intel, wsl]
print(f"1..{len(CASES)}")
for number, case in enumerate(CASES, 1):
    with tempfile.TemporaryDirectory() as folder:
        host = Host(folder)
        host.host.mkdir()
        case(host)
    print(f"ok {number} {case.__name__}", flush=True)
