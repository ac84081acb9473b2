#!/usr/bin/env python3
"""What `gradwire simulate` costs: CPU time over messages, where every rank is played.

  simulated_cost.py --out RESULTS --figure docs/img/simulated-cost.svg
  simulated_cost.py --kept RESULTS.json --figure docs/img/simulated-cost.svg

An exchange of 25 MiB in ten buckets on `--link 10gbit,20us,2us`. Ranks grow, and in the last row steps do. The CPU
time of one rank, which sends nothing, is that of the program's start, and is taken off.
"""

import argparse
import json
import os
import tempfile

from compare_torch import ROOT, machine_facts, positive, report, run

RUNS = {  # ranks, steps
    "ring": [(4, 1), (8, 1), (16, 1), (32, 1), (64, 1), (128, 1), (256, 1), (256, 8)],
    "halving": [(4, 1), (16, 1), (64, 1), (256, 1), (1024, 1), (256, 50)],
    "sra": [(8, 1), (16, 1), (32, 1), (64, 1), (128, 1), (256, 1), (256, 8)],
}


def simulate(options, ranks, steps, algorithm):
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "simulated.json")
        run([options.gradwire, "simulate", "--ranks", str(ranks), "--link", "10gbit,20us,2us", "--bytes", "25M",
             "--steps", str(steps), "--comm", f"iallreduce:bucket=2560K,algo={algorithm}", "--fold", "off",
             "--json", out])
        with open(out, encoding="utf-8") as file:
            return json.load(file)


def measure(options):
    """A row a run: the least CPU time of --repeats."""
    start = min(simulate(options, 1, 1, "ring")["cpu_s"] for _ in range(5))
    rows = []
    for algorithm in options.algorithms.split(","):
        for ranks, steps in RUNS[algorithm]:
            found = min((simulate(options, ranks, steps, algorithm) for _ in range(1 if steps > 1 else options.repeats)),
                        key=lambda one: one["cpu_s"])
            rows.append({"algorithm": algorithm, "ranks": ranks, "steps": steps,
                         "messages": round(found["messages"] * ranks * steps), "cpu_s": found["cpu_s"] - start,
                         "memory_bytes": found["memory_bytes"]})
    return rows


def table(rows):
    lines = [f"{'algorithm':10}{'ranks':>6}{'steps':>6}{'messages':>12}{'CPU s':>9}{'us a message':>14}{'MiB':>7}"]
    return lines + [f"{row['algorithm']:10}{row['ranks']:6}{row['steps']:6}{row['messages']:12}{row['cpu_s']:9.3f}"
                    f"{1e6 * row['cpu_s'] / row['messages']:14.2f}{row['memory_bytes'] / 2**20:7.0f}" for row in rows]


def draw(rows, path):
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib import rcParams
    from matplotlib.figure import Figure
    rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "simulated"})
    figure = Figure(figsize=(6.4, 4))
    FigureCanvasSVG(figure)
    axes = figure.add_subplot(xscale="log", yscale="log", xlabel="messages", ylabel="CPU time, s")
    for algorithm, marker in zip(RUNS, "os^"):
        of = [row for row in rows if row["algorithm"] == algorithm]
        axes.plot([row["messages"] for row in of], [row["cpu_s"] for row in of], marker=marker, label=algorithm)
    ends = [min(row["messages"] for row in rows), max(row["messages"] for row in rows)]
    each = sorted(row["cpu_s"] / row["messages"] for row in rows)[len(rows) // 2]
    axes.plot(ends, [each * end for end in ends], linestyle=":", color="grey", label=f"{1e6 * each:.1f} us a message")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gradwire", default=os.path.join(ROOT, "build/release/gradwire"))
    parser.add_argument("--algorithms", default=",".join(RUNS), help="which of them [all]")
    parser.add_argument("--repeats", type=positive, default=3, help="runs of a row, the fastest of which counts [3]")
    parser.add_argument("--kept", help="measure nothing, draw this JSON file")
    parser.add_argument("--out", help="write the results to OUT.txt and OUT.json; other algorithms there stay")
    parser.add_argument("--figure", help="draw the results to this SVG file")
    options = parser.parse_args()
    rows, kept = [], options.kept or (options.out and os.path.exists(options.out + ".json") and options.out + ".json")
    if kept:
        with open(kept, encoding="utf-8") as file:
            rows = json.load(file)["runs"]
    if not options.kept:
        fresh = measure(options)
        again = {row["algorithm"] for row in fresh}
        rows = [row for row in rows if row["algorithm"] not in again] + fresh
        facts = {**machine_facts(), "repeats": options.repeats, "gradwire": run([options.gradwire, "--version"]).strip()}
        report(options.out, facts, table(rows), {"facts": facts, "runs": rows})
    if options.figure:
        draw(rows, options.figure)


if __name__ == "__main__":
    main()
