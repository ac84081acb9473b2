"""Runs as tables and charts, in a notebook or a script: what `gradwire report`, `export` and `compare` make of run
folders, by the same functions.

    import gradwire.analysis as ga
    runs = ga.runs("runs")                  # a DataFrame, a row a run: the columns of `gradwire export`
    ga.batches(runs.iloc[0])                # its batches.csv, a row a rank and step
    ga.summary(runs)                        # a row a configuration, with intervals and verdicts
    ga.compare("runs/before", "runs/after")
    ga.plot.time_stack(runs)                # a matplotlib figure; each chart of the report is there

What takes runs takes a folder, a table of runs(), or rows of one: `runs[runs.ranks == 2]`. Seconds and bytes; what was
not measured is NaN or None. A mistake raises BadInput, and a chart that these runs do not hold the figures of NotShown,
each with one line. It reads folders alone, and needs no libgradwire.so."""

import importlib.util
import sys

lacking = [name for name in ("matplotlib", "pandas", "scipy") if importlib.util.find_spec(name) is None]
if lacking:
    raise ImportError(f"gradwire.analysis: {sys.executable} has no module {', '.join(lacking)}: "
                      "pip install matplotlib pandas scipy")

from gradwire.analysis import plot
from gradwire.analysis.read import batches, epochs, runs
from gradwire.analysis.reporting.base import BadInput
from gradwire.analysis.reporting.model import NotShown
from gradwire.analysis.tables import compare, summary

__all__ = ["BadInput", "NotShown", "batches", "compare", "epochs", "plot", "runs", "summary"]
