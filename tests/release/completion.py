#!/usr/bin/env python3
"""`medley completion`: bash really completes with it, and all that it offers is in the help. zsh and
fish are not among the packages; their scripts are held against the same lists."""
import os
import re
import subprocess

MEDLEY = os.environ["MEDLEY_BINARY"]


def medley(*words):
    return subprocess.run([MEDLEY, *words], capture_output=True, text=True, check=True).stdout


def check(condition, text):
    if not condition:
        raise SystemExit(f"completion.py: {text}")


def bash_offers(*words):
    """What bash offers for the last of the words."""
    script = medley("completion", "bash") + """
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _medley; printf '%s\\n' "${COMPREPLY[@]}"
"""
    found = subprocess.run(["bash", "-c", script, "bash", "medley", *words], capture_output=True,
                           text=True, check=True)
    check(not found.stderr, found.stderr)
    return found.stdout.split()


def commands():
    return re.findall(r"^  medley (\S+)", medley("help"), re.MULTILINE)


print("1..5")
names = commands()
check(len(names) > 30, names)
check(bash_offers("") == ["help", *names], bash_offers(""))
check(bash_offers("ru") == ["run"], "medley ru")
check(bash_offers("help", "pla") == ["plan", "place"], bash_offers("help", "pla"))
check(bash_offers("run", "model") == [], "files are bash's own")
print("ok 1 - bash completes commands")

offered = {name: bash_offers(name, "-") for name in names}
for name, options in offered.items():
    text = medley("help", name)
    for option in options:
        check(re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", text), f"{name}: {option}")
check({"-p", "--devices", "--kv", "--here"} <= set(offered["run"]), offered["run"])
check(bash_offers("run", "--de") == ["--devices"], bash_offers("run", "--de"))
print("ok 2 - and the options that the help names")

zsh, fish = medley("completion", "zsh"), medley("completion", "fish")
check(zsh.startswith("#compdef medley\n"), "zsh knows its files by the first line")
for name, options in offered.items():
    check(f"    {name}) options=({' '.join(options)}) ;;" in zsh, f"zsh: {name}")
    check(f"-a {name} -d '" in fish, f"fish: {name}")
    for option in options:
        kind = "-l" if option.startswith("--") else "-s"
        line = f"__fish_seen_subcommand_from {name}' {kind} {option.lstrip('-')}\n"
        check(line in fish, f"fish: {name} {option}")
print("ok 3 - zsh's and fish's scripts offer the same")

page = medley("completion", "man")
macros = {line.split()[0] for line in page.splitlines() if line.startswith((".", "'"))}
check(macros <= {".TH", ".SH", ".SS", ".PP", ".nf", ".fi", ".B", ".I", ".TP", "."}, macros)
for name in names:
    check(f".SS medley {name}\n" in page, f"man: {name}")
check(page.count(".nf\n") == page.count(".fi\n") == len(names), "each help is set as it stands")
print("ok 4 - the manual page has every command")

unknown = subprocess.run([MEDLEY, "help", "nothing"], capture_output=True, text=True, check=False)
check(unknown.returncode and "no command 'nothing'" in unknown.stderr and not unknown.stdout, unknown)
print("ok 5 - a command that is not there is said to be none")
