"""runs.csv of experiments/results/NAME, `gradwire export --compact`: a row per run of what a claim can be of. Written
from the rows of perrun.py, read as model.Results that reporting/judge.py judges as it does the runs themselves."""

from reporting import claims
from reporting.model import Cell, Results, Run

# What tells runs apart, and where they ran.
FACTS = ("study", "cell", "state", "why", "baseline", "block", "seed", "started_utc", "cpu", "cores", "ranks", "threads",
         "nodes", "marks", "step_s")
DIGITS = 7
NESTED = ("peak_bytes", "peak_sum_bytes")  # of run.json's results; a column has a dot
OF_STEP = "mean."


def wanted(name, means):
    """Whether a column of perrun.py is kept; means: the columns of batches.csv that a claim can be of."""
    return name in FACTS or name.startswith("level.") or name in claims.COLUMNS or \
        name.startswith(OF_STEP) and name.removeprefix(OF_STEP) in means


def short(value):
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def compact(rows, means):
    """The rows of cells' runs, without columns that no claim needs, or that are no FACTS and blank in all."""
    kept = [{name: short(value) for name, value in row.items() if wanted(name, means)} for row in rows if "cell" in row]
    blank = {name for row in kept for name in row} - set(FACTS) - {
        name for row in kept for name, value in row.items() if value not in (None, "")}
    return [{name: value for name, value in row.items() if name not in blank} for row in kept]


def number(text):
    return float(text) if text else None


def run_of(row, levels):
    result = {name: number(text) for name, text in row.items() if name in claims.COLUMNS and text}
    for nested in NESTED:
        result[nested] = {name.partition(".")[2]: value for name, value in result.items()
                          if name.startswith(f"{nested}.")}
    result["wire_bytes"] = result.get("run_wire_bytes")
    machine = {"cpu": row["cpu"], "cores_usable": int(row["cores"]), "ranks": int(row["ranks"]),
               "threads_per_rank": int(row["threads"]), "nodes": int(row["nodes"])}
    means = {name.removeprefix(OF_STEP): number(text) for name, text in row.items()
             if name.startswith(OF_STEP) and text}
    info = {"seed": int(row["seed"]), "started_utc": row["started_utc"], "machine": machine, "results": result}
    return Run(folder="", info=info, experiment=None, levels=levels, cell=row["cell"], block=row["block"] or None,
               walls=None, means=means, epochs=[], step_s=number(row["step_s"]),
               marks=[mark for mark in row["marks"].split("; ") if mark])


def results_of(rows, of_spec):
    """Results of the rows of a runs.csv as {column: text}, with the claims of the spec. ValueError, KeyError: it is
    none."""
    cells, factors = {}, {}
    for row in rows:
        levels = {name.removeprefix("level."): text for name, text in row.items() if name.startswith("level.") and text}
        cell = cells.setdefault(row["cell"], Cell(row["cell"], row["cell"], levels, [], row["baseline"] == "1"))
        for name, level in levels.items():
            factors.setdefault(name, {})[level] = None
        if row["state"] == "done":
            cell.runs.append(run_of(row, levels))
    baseline = next((cell for cell in cells.values() if cell.baseline), None)
    study = {"cells": [{"id": cell.name, "levels": cell.levels} for cell in cells.values()], "short": False,
             "baseline": baseline and baseline.name, "claims": of_spec}
    return Results(rows[0]["study"], ".", study, {name: list(levels) for name, levels in factors.items()},
                   [cell for cell in cells.values() if cell.runs], baseline, [], [],
                   empty=[cell for cell in cells.values() if not cell.runs])
