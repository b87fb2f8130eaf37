#!/usr/bin/env python3
"""Checks what is said of the metrics, against their one table (src/metrics/table.h).

    check.py table             docs/monitoring.md has the table's rows
    check.py page PROGRAM      `promtool check metrics` is content with a page of all metrics
    check.py rules             promtool's check and tests of contrib/prometheus
    check.py board             every expression of contrib/grafana parses
    check.py print             the rows for docs/monitoring.md

All but `page` also check that every metric that is named exists. `--self-test` shows each check
something wrong.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
RULES = ROOT / "contrib/prometheus/medley.rules.yml"
BOARD = ROOT / "contrib/grafana/medley.json"
DOCS = ROOT / "docs/monitoring.md"
TYPES = {"COUNTER": "counter", "GAUGE": "gauge"}  # all others: histogram
ROW = re.compile(r'X\((\w+),\s*"(\w+)",\s*(\w+),\s*"([\w,]*)",\s*((?:"(?:[^"\\]|\\.)*"\s*)+)\)')


def read_table(text):
    """[(name, type, [labels], help)]"""
    text = text.replace("\\\n", " ")
    rows = []
    for _, name, kind, labels, words in ROW.findall(text[text.index("#define METRICS_TABLE") :]):
        said = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', words))
        rows.append((name, TYPES.get(kind, "histogram"), [l for l in labels.split(",") if l], said))
    return rows


def table():
    return read_table((ROOT / "src/metrics/table.h").read_text())


def documented(rows):
    return [f"| `{name}` | {kind} | {', '.join(f'`{l}`' for l in labels)} | {said} |".replace(
        "|  |", "| |") for name, kind, labels, said in rows]


def check_table(docs, rows):
    found = [line for line in docs.splitlines() if line.startswith("| `medley_")]
    wanted = documented(rows)
    return [f"docs/monitoring.md lacks: {line}" for line in wanted if line not in found] + [
        f"docs/monitoring.md has what is not in the table: {line}"
        for line in found if line not in wanted]


def promtool(*words, text=None, folder=None):
    """What it complains of; [] where it is content."""
    done = subprocess.run(["promtool", *words], input=text, capture_output=True, text=True,
                          cwd=folder)
    said = (done.stdout + done.stderr).strip()
    if words[:2] == ("check", "metrics"):
        return [said] if done.returncode or said else []
    return [said] if done.returncode else []


def unknown_names(expression, rows, more):
    """Metrics that nobody exports."""
    names = set(more) | {"up"}
    for name, kind, _, _ in rows:
        names |= {name} if kind != "histogram" else {f"{name}_{s}" for s in ("bucket", "sum", "count")}
    used = re.findall(r"\b(?:medley[_:][\w:]+|up)\b(?!\s*\()", re.sub(r'"[^"]*"', '""', expression))
    return [name for name in used if name not in names]


def rule_expressions(text):
    """[(name of a recording, or None; expression)] without a YAML reader: the file is ours."""
    found, recording = [], None
    lines = text.splitlines()
    for i, line in enumerate(lines):
        if match := re.match(r"\s*- (record|alert): (\S+)", line):
            recording = match[2] if match[1] == "record" else None
        if match := re.match(r"(\s*)expr: (.*)", line):
            said = match[2]
            if said.startswith(">"):
                inner = []
                for more in lines[i + 1 :]:
                    if len(more) - len(more.lstrip()) <= len(match[1]):
                        break
                    inner.append(more.strip())
                said = " ".join(inner)
            found.append((recording, said))
    return found


def check_rules(text, rows):
    expressions = rule_expressions(text)
    recorded = [name for name, _ in expressions if name]
    complaints = [] if expressions else ["there are no rules"]
    for _, expression in expressions:
        complaints += [f"no such metric: {name} in {expression}"
                       for name in unknown_names(expression, rows, recorded)]
    return complaints


def alerts_without_test(text, tests):
    return [f"no test raises {name}" for name in re.findall(r"- alert: (\S+)", text)
            if not re.search(rf"alertname: {name}\n\s+exp_alerts:\n", tests)]


def check_board(board, rows, recorded):
    expressions = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    complaints = [] if expressions else ["the board has no expression"]
    lines = ["groups:", "  - name: board", "    rules:"]
    for i, expression in enumerate(expressions):
        complaints += [f"no such metric: {name} in {expression}"
                       for name in unknown_names(expression, rows, recorded)]
        plain = expression.replace("$__rate_interval", "1m").replace("$instance", ".*")
        lines += [f"      - record: board:{i}", f"        expr: {json.dumps(plain)}"]
        if "$" in plain:
            complaints.append(f"a variable that the board does not have: {plain}")
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
        file.write("\n".join(lines) + "\n")
        file.flush()
        return complaints + promtool("check", "rules", file.name)


def self_test():
    rows = [("medley_a_total", "counter", ["model"], "All."), ("medley_b_seconds", "histogram", [], "B.")]
    good = "\n".join(documented(rows))
    header = '#define METRICS_TABLE(X) \\\n X(A, "medley_a_total", COUNTER, "model", \\\n "A" \\\n "ll.") \\\n'
    panel = lambda expression: {"panels": [{"targets": [{"expr": expression}]}]}
    cases = [
        (read_table(header + ' X(B, "medley_b_seconds", LONG_SECONDS, "", "B.")') == rows, True),
        (check_table(good, rows), []),
        (bool(check_table(good.replace("All", "Some"), rows)), True),
        (bool(check_table(good + "\n| `medley_c` | gauge | | C. |", rows)), True),
        (promtool("check", "metrics", text="# HELP medley_a_total A.\n# TYPE medley_a_total counter\nmedley_a_total 1\n"), []),
        (bool(promtool("check", "metrics", text="# HELP medley_a A.\n# TYPE medley_a counter\nmedley_a 1\n")), True),
        (bool(promtool("check", "metrics", text="# HELP medley_a_ms A.\n# TYPE medley_a_ms gauge\nmedley_a_ms 1\n")), True),
        (unknown_names('rate(medley_b_seconds_sum{x="medley_no"}[1m]) + up', rows, []), []),
        (unknown_names("medley_b_seconds", rows, []), ["medley_b_seconds"]),
        (rule_expressions("- alert: X\n  expr: >-\n    a\n    + b\n  for: 1m\n- record: r:x\n  expr: c\n"),
         [(None, "a + b"), ("r:x", "c")]),
        (bool(check_rules("", rows)), True),
        (check_board(panel("rate(medley_a_total[$__rate_interval])"), rows, []), []),
        (bool(check_board(panel("rate(medley_a_total[1m]"), rows, [])), True),
        (bool(check_board(panel("rate(medley_other[1m])"), rows, [])), True),
        (bool(check_board(panel("rate(medley_a_total[$step])"), rows, [])), True),
        (alerts_without_test("- alert: A\n- alert: B\n", "alertname: A\n   exp_alerts:\n"), ["no test raises B"]),
    ]
    return [f"case {i}: {found!r}, not {wanted!r}"
            for i, (found, wanted) in enumerate(cases) if found != wanted]


def main(what, *words):
    if what == "--self-test":
        return self_test()
    rows = table()
    if len(rows) < 50:
        return [f"only {len(rows)} rows of the table were read"]
    if what == "print":
        print("\n".join(documented(rows)))
        return []
    if what == "table":
        return check_table(DOCS.read_text(), rows)
    if what == "page":
        text = subprocess.run([words[0], "print"], capture_output=True, text=True, check=True).stdout
        lacks = [f"the page lacks {name}" for name, _, _, _ in rows if f"# TYPE {name} " not in text]
        return lacks + promtool("check", "metrics", text=text)
    recorded = [name for name, _ in rule_expressions(RULES.read_text()) if name]
    if what == "rules":
        tests = RULES.with_suffix("").with_suffix(".rules.test.yml")
        return (check_rules(RULES.read_text(), rows) + promtool("check", "rules", RULES)
                + alerts_without_test(RULES.read_text(), tests.read_text())
                + promtool("test", "rules", tests.name, folder=tests.parent))
    if what == "board":
        return check_board(json.loads(BOARD.read_text()), rows, recorded)
    return [__doc__]


if __name__ == "__main__":
    wrong = main(*(sys.argv[1:] or [""]))
    print("\n".join(wrong))
    sys.exit(bool(wrong))
