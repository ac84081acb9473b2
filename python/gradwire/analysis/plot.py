"""The charts of `gradwire report`, a function each: plot.time_stack(runs), plot.step_times(runs), ..

Each takes a folder or a table of runs() and returns a matplotlib figure, which a notebook shows: change its `axes`, or
`savefig` it. `table` is a DataFrame of what is drawn, in full; `caption` says how that was measured, `notes` what to know
before believing it. baseline: a cell, its label, or FACTOR=LEVEL,... Raises NotShown where the runs do not hold what
the chart needs."""

import importlib

import pandas

from gradwire.analysis.read import results
from gradwire.analysis.reporting import charts, figure
from gradwire.analysis.reporting.base import BadInput

__all__ = [name for name in charts.ORDER if name not in charts.TABLES]


def _one(runs, baseline):
    found = results(runs, baseline)
    if len(found) != 1:
        names = ", ".join(one.name for one in found)
        raise BadInput(f"a chart is of one study, and these runs are of {len(found)} ({names}): choose one, as in "
                       "runs[runs.study == NAME]" if found else "no run: all rows are of runs without figures")
    return found[0]


def _function(name):
    module = importlib.import_module(f"{charts.__name__}.{name}")

    def chart(runs, baseline=None):
        made = module.build(_one(runs, baseline))
        made.name = name
        drawing = figure.Drawing(made)
        drawing.table = pandas.DataFrame(made.table.rows, columns=made.table.columns)
        drawing.caption, drawing.notes = made.caption, made.notes
        return drawing

    chart.__name__ = chart.__qualname__ = name
    chart.__doc__ = f"{module.TITLE}, as a figure of matplotlib; help(plot) tells more."
    return chart


globals().update({name: _function(name) for name in __all__})
