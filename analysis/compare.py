#!/usr/bin/env python3
"""Print one table that compares runs: analysis/compare.py RUN_DIR RUN_DIR...

Reads nothing but each folder's run.json; needs nothing but Python. Exit status 2: a folder
cannot be read, with one line that says why.
"""

import json
import os
import sys

# Title, unit, key in results.summary, factor to the unit, format.
COLUMNS = [
    ("step time", "ms", "wall_s", 1e3, ".3f"),
    ("computation", "ms", "compute_s", 1e3, ".3f"),
    ("memory-bound", "ms", "memory_s", 1e3, ".3f"),
    ("exposed comm.", "ms", "exposed_s", 1e3, ".3f"),
    ("hidden comm.", "ms, at most", "hidden_s", 1e3, ".3f"),
    ("codec", "ms", "codec_s", 1e3, ".3f"),
    ("wire", "bytes/step", "wire_bytes", 1, ",.0f"),
]

NOTES = """\
Medians per step. computation: forward, backward and update. exposed: the step waited for it.
hidden: messages in flight while the rank computed, an upper bound of what really overlapped.
codec: encoding and decoding. wire: what one rank hands to MPI in a step."""
NOTE_ABSENT = "absent: not measured (memory-bound: needs hardware counters or --ceilings)."


class BadRun(Exception):
    """A folder that is not a finished run; its text is the one line for the user."""


def read_run(folder):
    """The `results` object of a run's folder."""
    path = os.path.join(folder, "run.json")
    try:
        with open(path, encoding="utf-8") as file:
            results = json.load(file)["results"]
        results["test_accuracy"]
        for _, _, key, _, _ in COLUMNS:
            results["summary"][key]
    except OSError as error:
        raise BadRun(f"{path}: {error.strerror}: not the folder of a finished run") from error
    except ValueError as error:
        raise BadRun(f"{path}: not valid JSON: {error}") from error
    except (KeyError, TypeError) as error:
        raise BadRun(f"{path}: lacks {error}: written by another version, or unfinished") from error
    return results


def memory(figures):
    """Memory time by its best source as (low, high); None: absent."""
    if not isinstance(figures, dict):  # of schema 1
        return figures
    if figures["ctr_s"] is not None:
        return figures["ctr_s"]
    parts = figures["twin_s"], figures["model_lo_s"], figures["model_hi_s"]
    return None if None in parts else (parts[0] + parts[1], parts[0] + parts[2])


def cell(value, factor, form):
    """A figure as text, an interval by its ends; one that was not measured is absent, never 0."""
    if isinstance(value, tuple):
        return "..".join(cell(end, factor, form) for end in value)
    return "absent" if value is None else format(value * factor, form)


def table(runs):
    """Lines of the table of {name: results}; two lines of titles, the second holds the units."""
    rows = [
        ["run"] + [title for title, *_ in COLUMNS] + ["test accuracy"],
        [""] + [f"({unit})" for _, unit, *_ in COLUMNS] + ["(fraction)"],
    ]
    for name, results in runs.items():
        summary = dict(results["summary"], memory_s=memory(results["summary"]["memory_s"]))
        figures = [cell(summary[key], factor, form) for _, _, key, factor, form in COLUMNS]
        rows.append([name] + figures + [cell(results["test_accuracy"], 1, ".4f")])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [text.rjust(width) for text, width in zip(row[1:], widths[1:])]
        lines.append("  ".join(cells).rstrip())
    lines.insert(2, "-" * max(map(len, lines)))
    return lines


def main(folders):
    if not folders or any(folder.startswith("-") for folder in folders):
        print(__doc__.splitlines()[0], file=sys.stderr)
        return 2
    runs = {}
    try:
        for folder in folders:
            name = os.path.basename(os.path.normpath(folder))
            runs[folder if name in runs else name] = read_run(folder)
    except BadRun as error:
        print(f"compare: {error}", file=sys.stderr)
        return 2
    lines = table(runs)
    print("\n".join(lines))
    print(NOTES)
    if any("absent" in line for line in lines):
        print(NOTE_ABSENT)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
