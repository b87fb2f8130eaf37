#!/usr/bin/env python3
"""`medley service` under a real systemd: service.py MEDLEY MODEL, as root, where systemd runs.

Started by ./dev service-check in namespaces of its own. Prints a line for each thing that was seen, and
ends with the first that was not.
"""
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time

MEDLEY, MODEL = sys.argv[1:3]
UNIT = "medley.service"
USER = "ann"
DROP_IN = "/run/systemd/system/medley.service.d/quick.conf"


def run(*words, ok=True):
    done = subprocess.run(words, capture_output=True, text=True, timeout=90)
    if ok and done.returncode:
        sys.exit(f"{' '.join(words)}: {done.returncode}\n{done.stdout}{done.stderr}{journal()}")
    return done.stdout + done.stderr


def journal():
    return subprocess.run(["journalctl", "--no-pager", "-n", "40", f"UNIT={UNIT}", "+",
                           f"_SYSTEMD_UNIT={UNIT}", "+", f"_SYSTEMD_USER_UNIT={UNIT}", "+",
                           f"USER_UNIT={UNIT}"], capture_output=True, text=True).stdout


def shown(name):
    return run("systemctl", "show", "--value", "--property", name, UNIT).strip()


def wait_for(what, seconds, is_so):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if is_so():
            return
        time.sleep(0.1)
    sys.exit(f"not within {seconds} s: {what}\n{journal()}")


def ask(path="/health", patience=30):
    connection = http.client.HTTPConnection("127.0.0.1", 8080, timeout=patience)
    connection.request("GET", path)
    answer = connection.getresponse()
    return answer.status, answer.read()


def check(what, is_so):
    if not is_so:
        sys.exit(f"FAILED: {what}\n{journal()}")
    print(f"ok  {what}", flush=True)


def models():
    return [model["id"] for model in json.loads(ask("/v1/models")[1])["data"]]


def install():
    run(MEDLEY, "service", "install", "--", "--model", MODEL, "--new", "--no-discovery")
    check("installed, and ready when that returned", shown("ActiveState") == "active")
    check("its status is said", shown("StatusText") == "serving")
    check("it is enabled", run("systemctl", "is-enabled", UNIT).strip() == "enabled")
    user = int(run("stat", "-c", "%u", f"/proc/{shown('MainPID')}").strip())
    check("it runs as a user of its own", user not in (0, os.getuid()))
    wait_for("it has its model", 60, models)
    check("its API answers", ask()[0] == 200)
    check("root's commands find its node", "127.0.0.1:8080" in run(MEDLEY, "status"))
    body = json.dumps({"model": models()[0], "prompt": "A fox", "max_tokens": 8})
    connection = http.client.HTTPConnection("127.0.0.1", 8080, timeout=60)
    connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    check("it generates, hardened as it is", answer.status == 200 and
          json.loads(answer.read())["usage"]["completion_tokens"] == 8)


def security():
    verify = run("systemd-analyze", "verify", "--man=no", f"/etc/systemd/system/{UNIT}", ok=False)
    about = [line for line in verify.splitlines() if "medley" in line]
    check("systemd-analyze has nothing to say of the unit", not about)
    print(run("systemd-analyze", "security", "--no-pager", UNIT, ok=False).strip().splitlines()[-1])


def reload():
    pid = shown("MainPID")
    run("systemctl", "reload", UNIT)
    check("it was reloaded, and is the same process", shown("MainPID") == pid)
    check("it said when it was through", shown("ReloadResult") == "success")


def restart():
    run("systemctl", "reset-failed", UNIT)  # more in ten seconds than systemd allows a service
    run("systemctl", "restart", UNIT)


def complete(model):
    """What became of a completion, on a connection of its own."""
    body = json.dumps({"model": model, "prompt": "A fox", "max_tokens": 4})
    try:
        connection = http.client.HTTPConnection("127.0.0.1", 8080, timeout=60)
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        return connection.getresponse().status
    except (OSError, http.client.HTTPException) as failure:
        return type(failure).__name__


def nothing_refused_while_it_restarts():
    """What comes while it stops waits for the next process; what it was answering, it ends."""
    model = models()[0]
    answers, ended = [], threading.Event()

    def load():
        while not ended.is_set():
            answers.append(complete(model))

    threads = [threading.Thread(target=load) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(3):
        time.sleep(1)
        restart()
    time.sleep(1)
    ended.set()
    for thread in threads:
        thread.join()
    others = sorted({str(answer) for answer in answers if answer != 200})
    check(f"{len(answers)} completions over three restarts: "
          f"{answers.count(200)} answered, others: {others}",
          len(answers) > 50 and not others)


def comes_back():
    pid = int(shown("MainPID"))
    os.kill(pid, signal.SIGKILL)
    wait_for("it is back after kill -9", 30,
             lambda: shown("MainPID") not in ("0", str(pid)) and shown("ActiveState") == "active")
    check("it came back after kill -9", ask()[0] == 200)
    os.makedirs(os.path.dirname(DROP_IN), exist_ok=True)
    with open(DROP_IN, "w", encoding="utf-8") as file:
        file.write("[Service]\nWatchdogSec=3\nTimeoutAbortSec=2\n")
    run("systemctl", "daemon-reload")
    restart()
    time.sleep(7)
    check("a watchdog of 3 s leaves a live one alone for 7 s", shown("NRestarts") == "0")
    os.kill(int(shown("MainPID")), signal.SIGSTOP)
    wait_for("one that stands still is replaced", 30,
             lambda: shown("NRestarts") == "1" and shown("ActiveState") == "active")
    check("one that stood still was replaced by the watchdog", ask()[0] == 200)
    os.remove(DROP_IN)
    run("systemctl", "daemon-reload")


def changes():
    run(MEDLEY, "service", "install", "--", "--api", "none", "--new", "--no-discovery")
    check("with other options it is another", "--api" in run("systemctl", "cat", UNIT))
    check("its socket is gone", not os.path.exists("/etc/systemd/system/medley.socket"))
    said = run(MEDLEY, "service", "install", "--", "--no-such-option", ok=False)
    check("options that the node does not know are an error", "did not succeed" in said)


def remove():
    said = run(MEDLEY, "service", "remove")
    check("removed, and its state kept", "state is still there" in said and
          not os.path.exists(f"/etc/systemd/system/{UNIT}") and
          os.path.exists("/var/lib/private/medley/identity"))
    check("removing it again is an error",
          "there is no service" in run(MEDLEY, "service", "remove", ok=False))


def as_user(*words, ok=True):
    """A command of a person without a session: as by ssh, with what pam_systemd would set."""
    user = run("id", "-u", USER).strip()
    return run("setpriv", "--reuid", USER, "--regid", USER, "--init-groups", "--no-new-privs", "env",
               "-i", "PATH=/usr/bin:/bin", f"HOME=/home/{USER}", f"XDG_RUNTIME_DIR=/run/user/{user}",
               *words, ok=ok)


def user_shown(name):
    return as_user("systemctl", "--user", "show", "--value", "--property", name, UNIT).strip()


def of_a_user():
    run("useradd", "--create-home", USER)
    run("loginctl", "enable-linger", USER)
    check("a user lingers, and a systemd runs for them", "yes" in run(
        "loginctl", "show-user", USER, "--property", "Linger"))
    wait_for("their systemd answers", 30, lambda: "running" in as_user(
        "systemctl", "--user", "is-system-running", "--wait", ok=False))
    as_user(MEDLEY, "service", "install", "--user", "--", "--model", MODEL, "--new",
            "--no-discovery")
    check("their service is installed, without root", user_shown("ActiveState") == "active")
    check("it is enabled", as_user("systemctl", "--user", "is-enabled", UNIT).strip() == "enabled")
    owner = run("stat", "-c", "%U", f"/proc/{user_shown('MainPID')}").strip()
    check("it runs as them", owner == USER)
    wait_for("it has its model", 60, models)
    check("it generates", complete(models()[0]) == 200)
    check("their commands find its node", "127.0.0.1:8080" in as_user(MEDLEY, "status"))
    pid = user_shown("MainPID")
    as_user("systemctl", "--user", "reload", UNIT)
    check("it was reloaded", user_shown("MainPID") == pid)
    run("systemctl", "restart", f"user@{run('id', '-u', USER).strip()}.service")
    wait_for("it begins with their systemd, without a login", 30,
             lambda: user_shown("ActiveState") == "active" and user_shown("MainPID") != pid)
    os.kill(int(user_shown("MainPID")), signal.SIGKILL)
    wait_for("it is back after kill -9", 30, lambda: user_shown("NRestarts") == "1" and
             user_shown("ActiveState") == "active")
    check("it came back after kill -9, and begins without a login", ask()[0] == 200)
    as_user(MEDLEY, "service", "remove", "--user")
    check("removed, and its state kept", user_shown("ActiveState") == "inactive" and
          not os.path.exists(f"/home/{USER}/.config/systemd/user/{UNIT}") and
          os.path.exists(f"/home/{USER}/.local/state/medley/identity"))


def main():
    run("systemctl", "is-system-running", "--wait", ok=False)
    for step in (install, security, reload, nothing_refused_while_it_restarts, comes_back, changes,
                 remove, of_a_user):
        step()
    print("all as it should be")


main()
