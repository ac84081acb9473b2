"""runs.csv of experiments/results/NAME, `gradwire export --compact`: a row per run of what a claim can be of. Written
from the rows of perrun.py, read as model.Results that reporting/judge.py judges and reporting/page.py shows as they do
the runs themselves."""

import csv
import os

from . import claims, ends, sheet, specs
from .model import Cell, Lost, Results, Run, Table
from .base import BadInput

RUNS, TUNED = "runs.csv", "tuned.csv"
MOST = 4 << 20  # bytes of a CSV file

# What tells runs apart, and where they ran.
FACTS = ("study", "cell", "state", "why", "baseline", "block", "seed", "started_utc", "cpu", "cores", "ranks", "threads",
         "nodes", "marks", "step_s")
DIGITS = 9  # claims of the runs and of what is kept of them agree
# Charts that runs.csv has the figures of; of the others a folder may have the drawing, NAME.svg, and the table, NAME.csv.
CHARTS = ("baseline", "effects", "sweep", "final_accuracy", "memory", "order")
NOT_KEPT = "not kept: runs.csv has figures of whole runs, not their steps, epochs, ranks or options"
EXPOSED = ("mean.mpi_post_s", "mean.mpi_poll_s", "mean.mpi_wait_s")
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


def place_of(row):
    """What stands for the run's folder, which is not kept."""
    return f"block {row['block']}: {row['cell']}"


def run_of(row, levels):
    result = {name: number(text) for name, text in row.items() if name in claims.COLUMNS and text}
    for nested in NESTED:
        result[nested] = {name.partition(".")[2]: value for name, value in result.items()
                          if name.startswith(f"{nested}.")}
    result["wire_bytes"] = result.get("run_wire_bytes")
    exposed = [number(row.get(name)) for name in EXPOSED]
    result["summary"] = {"exposed_s": None if None in exposed else sum(exposed)}
    machine = {"cpu": row["cpu"], "cores_usable": int(row["cores"]), "ranks": int(row["ranks"]),
               "threads_per_rank": int(row["threads"]), "nodes": int(row["nodes"])}
    means = {name.removeprefix(OF_STEP): number(text) for name, text in row.items()
             if name.startswith(OF_STEP) and text}
    info = {"seed": int(row["seed"]), "started_utc": row["started_utc"], "machine": machine, "results": result}
    return Run(folder=place_of(row), info=info, experiment=None, levels=levels, cell=row["cell"], block=row["block"] or None,
               walls=None, means=means, epochs=[], step_s=number(row["step_s"]),
               marks=[mark for mark in row["marks"].split("; ") if mark])


def rows_in(path):
    """Rows of a CSV file with titles as {column: text}."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return sheet.rows_of(file.read(MOST))
    except (OSError, ValueError, csv.Error) as error:
        raise BadInput(f"{path}: {getattr(error, 'strerror', None) or error}: must be written by "
                       "`gradwire report`, `export` or `claims`") from error


def figure(text):
    """What a file of `gradwire report --tables` says in a place: a number, a text, or None."""
    try:
        return float(text)
    except ValueError:
        return text or None


def table_in(path):
    """The Table of such a file."""
    rows = rows_in(path)
    return Table(list(rows[0]) if rows else [], [[label, *map(figure, rest)] for label, *rest in map(dict.values, rows)])


def results_of(rows, labels=None, **study):
    """Results of the rows of a runs.csv as {column: text}; labels: {name of a cell: its label}; study: what the spec
    says. IndexError, KeyError, TypeError, ValueError: they are not such rows."""
    cells, factors, lost = {}, {}, []
    for row in rows:
        levels = {name.removeprefix("level."): text for name, text in row.items() if name.startswith("level.") and text}
        label = (labels or {}).get(row["cell"], row["cell"])
        cell = cells.setdefault(row["cell"], Cell(row["cell"], label, levels, [], row["baseline"] == "1"))
        for name, level in levels.items():
            factors.setdefault(name, {})[level] = None
        if row["state"] == ends.DONE:
            cell.runs.append(run_of(row, levels))
        else:
            lost.append(Lost(row["state"], place_of(row), row["cell"], row.get("why") or "its reason was not kept"))
    baseline = next((cell for cell in cells.values() if cell.baseline), None)
    study = {"cells": [{"id": cell.name, "levels": cell.levels} for cell in cells.values()], "short": False,
             "baseline": baseline and baseline.name, **study}
    return Results(rows[0]["study"], ".", study, {name: list(levels) for name, levels in factors.items()},
                   [cell for cell in cells.values() if cell.runs], baseline if baseline and baseline.runs else None, [],
                   lost, empty=[cell for cell in cells.values() if not cell.runs])


def results_in(path, rows, labels=None, **study):
    """The same; BadInput about the file."""
    try:
        return results_of(rows, labels, **study)
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{path}: is not a table that `gradwire export --compact` writes: {error}") from error


def read(folder):
    """Results of a folder of experiments/results for a report: its runs, by the labels of its cells, with what the spec
    says. BadInput: its runs were not kept; None: it keeps nothing."""
    path, table = os.path.join(folder, RUNS), os.path.join(folder, "summary.csv")
    if not os.path.lexists(table):
        return None
    cells = rows_in(table)
    if not cells or "study" not in cells[0]:
        raise BadInput(f"{table}: is not a summary that `gradwire report` writes: name a folder of experiments/results")
    spec = specs.path_of(cells[0]["study"], table)
    if not os.path.lexists(path):
        raise BadInput(f"{path}: its runs were not kept, and without them there is no page: measure again, "
                       f"`experiments/run {os.path.relpath(spec)}`")
    labels = {row["cell"]: row["label"] for row in cells if "label" in row}
    tuned = os.path.join(folder, TUNED)
    results = results_in(path, rows_in(path), labels, **specs.study_of(spec),
                         **({"tuned": rows_in(tuned)} if os.path.lexists(tuned) else {}))
    results.kept = folder
    return results
