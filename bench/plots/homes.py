#!/usr/bin/env python3
"""Draws what bench/homes wrote: for each ratio, the share of homes in which the best placement is at least so much faster.

    python3 bench/plots/homes.py build/bench/homes.csv homes.png
"""
import csv
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

SIDES = [  # column, label, colour (Okabe and Ito's, which colour-blind people tell apart), dashes
    ("memory", "by memory (exo, llama.cpp)", "#D55E00", "-"),
    ("flops", "by FLOP/s (cake)", "#0072B2", "-"),
    ("equal", "equal (distributed-llama)", "#009E73", "-"),
    ("score", "by score", "#888888", "-"),
    ("careful", "one machine where it fits, else by memory", "#000000", "--"),
]
TICKS = [1, 1.3, 2, 3, 5, 10, 20]


def ratios(rows, side):
    return sorted(float(row["best"]) / float(row[side]) for row in rows if float(row[side]) > 0)


def draw(axes, rows, title):
    for side, label, colour, dashes in SIDES:
        values = ratios(rows, side)
        if not values:
            continue
        median = values[len(values) // 2] if len(values) % 2 else sum(values[len(values) // 2 - 1 :][:2]) / 2
        shares = [100 * (len(values) - i) / len(values) for i in range(len(values))]
        nothing = 100 * (len(rows) - len(values)) / len(rows)
        note = f", none in {nothing:.0f} %" if nothing >= 0.5 else ""
        axes.plot(values, shares, dashes, color=colour, linewidth=1.6, label=f"{label}: median {median:.2f}×{note}")
    axes.axvline(1.3, color="#bbbbbb", linewidth=0.8, zorder=0)
    axes.axhline(50, color="#bbbbbb", linewidth=0.8, zorder=0)
    axes.set_xscale("log")
    axes.set_xlim(1, TICKS[-1])
    axes.set_ylim(0, 100)
    axes.set_xticks(TICKS, [f"{tick:g}×" for tick in TICKS])
    axes.minorticks_off()
    axes.set_title(f"{title} ({len(rows)} homes)", fontsize=10)
    axes.set_xlabel("best placement is at least so much faster")
    axes.legend(fontsize=7, frameon=False, loc="upper right")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: homes.py CSV PNG")
    with open(sys.argv[1], newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    if not rows:
        sys.exit(f"{sys.argv[1]}: no homes")
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), sharey=True)
    draw(left, [row for row in rows if row["needs_several"] == "1"], "No device holds the model alone")
    draw(right, [row for row in rows if row["needs_several"] == "0"], "One device would do")
    left.set_ylabel("share of homes, %")
    figure.suptitle("Predicted decode tokens/s: the best placement over others' policies, random homes", fontsize=11)
    figure.tight_layout()
    figure.savefig(sys.argv[2], dpi=90)


if __name__ == "__main__":
    main()
