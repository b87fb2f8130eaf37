#!/usr/bin/env python3
"""Holds `medley perplexity` and `medley compare` against an independent computation of the same figures.

    check.py MEDLEY MODELS

The rows are those that `medley logits` writes for each window by itself; the figures are made of them here, in plain
Python with exact sums. Also: --max-kl and what is no pair of models.
"""
import array
import json
import math
import pathlib
import subprocess
import sys
import tempfile

WINDOW = 48
TEXT = "One fine day, a fox went to see the sea. It was wide and blue, and it said nothing at all.\n" * 5
CPU = ["--devices", "cpu", "-t", "1", "--context", str(WINDOW)]
Z = 1.959963984540054


def run(*words, status=0, **more):
    done = subprocess.run(words, capture_output=True, **more)
    if done.returncode != status:
        sys.exit(f"{' '.join(words)}: status {done.returncode}, not {status}: {done.stderr.decode()}")
    return done


def windows_of(medley, model, text):
    tokens = json.loads(run(medley, "tokenize", model, "--add-special", input=text.encode()).stdout)
    bos = tokens[0]
    count = len(tokens) // WINDOW
    cut = [tokens[i * WINDOW : (i + 1) * WINDOW] for i in range(count)]
    return len(tokens), [([bos] + window[1:], window) for window in cut]


def rows_of(medley, model, prompt, folder):
    """The second half's rows, but for the last, whose next token is not known."""
    out = folder / "rows"
    run(medley, "logits", model, "--tokens", ",".join(map(str, prompt)), "--out", str(out), *CPU)
    values = array.array("f", out.read_bytes())
    n_vocab = len(values) // WINDOW
    return [values[i * n_vocab : (i + 1) * n_vocab] for i in range(WINDOW // 2, WINDOW - 1)]


def log_softmax(row):
    total = math.log(math.fsum(math.exp(value) for value in row))
    return [value - total for value in row]


def mean_interval(values):
    n = len(values)
    mean = math.fsum(values) / n
    error = Z * math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1) / n)
    return mean, mean - error, mean + error


def quantile_interval(values, p):
    values = sorted(values)
    n = len(values)
    spread = Z * math.sqrt(n * p * (1 - p))
    ranks = math.ceil(n * p), math.floor(n * p - spread), math.ceil(n * p + spread) + 1
    return [values[min(max(rank, 1), n) - 1] for rank in ranks]


def share_interval(hits, n):
    """Wilson's: where the normal test of a share stops to refuse it, as roots of a quadratic equation."""
    a, b, c = n + Z * Z, -(2 * hits + Z * Z), hits * hits / n
    root = math.sqrt(b * b - 4 * a * c)
    return hits / n, (-b - root) / (2 * a), (-b + root) / (2 * a)


def figures(rows_a, rows_b, tokens):
    kls, surprise_a, surprise_b, errors, same = [], [], [], [], 0
    for a, b, token in zip(rows_a, rows_b, tokens):
        p, q = log_softmax(a), log_softmax(b)
        kls.append(math.fsum(math.exp(x) * (x - y) for x, y in zip(p, q)))
        surprise_a.append(-p[token])
        surprise_b.append(-q[token])
        errors += [y - x for x, y in zip(a, b)]
        same += max(range(len(a)), key=a.__getitem__) == max(range(len(b)), key=b.__getitem__)
    return {
        "kl_mean": mean_interval(kls),
        "kl_median": quantile_interval(kls, 0.5),
        "kl_p99": quantile_interval(kls, 0.99),
        "same_top": share_interval(same, len(kls)),
        "perplexity_a": [math.exp(x) for x in mean_interval(surprise_a)],
        "perplexity_b": [math.exp(x) for x in mean_interval(surprise_b)],
        "logit_error_rms": math.sqrt(math.fsum(x * x for x in errors) / len(errors)),
        "logit_error_max": max(map(abs, errors)),
        "positions": len(kls),
    }


def hold(name, told, computed):
    if isinstance(told, dict):
        for part, value in zip(("value", "low", "high"), computed):
            hold(f"{name} {part}", told[part], value)
    elif not math.isclose(told, computed, rel_tol=1e-6, abs_tol=1e-9):
        sys.exit(f"{name}: Medley says {told}, computed apart it is {computed}")


def check_fit(medley, original, folder, words):
    """A plan is carried out as it was written, within its bytes; a bound that it breaks leaves no file."""
    plan, small = folder / "plan", folder / "fit.gguf"
    fit = ["convert", original, "--fit", "100 kB"]
    run(medley, *fit, "--plan", str(plan), *words)
    assert not list(folder.glob("*fit*")), "a plan converts nothing"
    changed = [line.split()[:2] for line in plan.read_text().splitlines()[2:] if line[0] != "#"]
    assert len(changed) > 10
    done = json.loads(run(medley, "convert", original, "--by", str(plan), "-o", str(small), "--json").stdout)
    assert done["converted"] == len(changed) and done["weight_bytes"] <= 100000
    assert done["bytes"] == small.stat().st_size
    again = folder / "again.gguf"
    told = json.loads(run(medley, *fit, "-o", str(again), "--json", *words).stdout)
    assert again.read_bytes() == small.read_bytes(), "the same plan gives the same file"
    compared = json.loads(run(medley, "compare", original, str(small), "--json", *words).stdout)
    hold("KL of --fit", told["kl_mean"]["value"], compared["kl_mean"]["value"])
    none = folder / "none.gguf"
    refused = run(medley, *fit, "-o", str(none), "--max-kl", "0.000001", *words, status=1)
    assert b"nothing was written" in refused.stderr and not none.exists()
    refused = run(medley, "convert", original, "--fit", "1kB", "-o", str(none), *words, status=2)
    assert b"the least is" in refused.stderr
    done = run(medley, "convert", original, "--fit", "1GiB", "-o", str(none), *words, status=2)
    assert b"nothing to do" in done.stderr and not none.exists()
    run(medley, *fit, "--plan", str(folder / "plan2"), "-o", str(small), *words)
    assert (folder / "plan2").read_bytes() == plan.read_bytes()
    refused = run(medley, "convert", original, "--fit", "many", status=2)
    assert b"an amount such as 8GiB" in refused.stderr


def main():
    medley, models = sys.argv[1], pathlib.Path(sys.argv[2])
    original, other = str(models / "llama.gguf"), None
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        text, other = folder / "text", str(folder / "small.gguf")
        text.write_text(TEXT)
        run(medley, "convert", original, "--to", "q4_0", "-o", other)
        n_tokens, windows = windows_of(medley, original, TEXT)
        rows_a = [row for prompt, _ in windows for row in rows_of(medley, original, prompt, folder)]
        rows_b = [row for prompt, _ in windows for row in rows_of(medley, other, prompt, folder)]
        tokens = [token for _, window in windows for token in window[WINDOW // 2 + 1 :]]
        assert len(rows_a) == len(rows_b) == len(tokens) > 50
        computed = figures(rows_a, rows_b, tokens)
        words = ["--text", str(text), *CPU]
        told = json.loads(run(medley, "compare", original, other, "--json", *words).stdout)
        assert set(told) == set(computed), told
        for what, value in computed.items():
            hold(what, told[what], value)
        alone = json.loads(run(medley, "perplexity", original, "--json", *words).stdout)
        hold("perplexity", alone["perplexity"], computed["perplexity_a"])
        assert alone["tokens"] == n_tokens and alone["positions"] == len(tokens)
        above, below = computed["kl_mean"][0] * 1.01, computed["kl_mean"][0] * 0.99
        run(medley, "compare", original, other, "--max-kl", f"{above:.9f}", *words)
        done = run(medley, "compare", original, other, "--max-kl", f"{below:.9f}", *words, status=1)
        assert b"above the bound" in done.stderr
        unlike = str(models.parent.parent.parent / "models" / "demo.gguf")
        done = run(medley, "compare", original, unlike, *words, status=2)
        assert b"one vocabulary" in done.stderr
        check_fit(medley, original, folder, words)
        text.write_text("a")
        done = run(medley, "perplexity", original, *words, status=2)
        assert b"longer --text" in done.stderr
        print(f"{len(tokens)} positions; KL {computed['kl_mean'][0]:.6f}; every figure is the same")


if __name__ == "__main__":
    main()
