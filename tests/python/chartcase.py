"""For tests of charts: real runs of gradwire as the report reads them, and charts as drawn."""

import copy
import itertools
import os
import tempfile
import unittest

import gwrun

import matplotlib.style
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from reporting import figure, model, runs

TASK = ("--data", "synthetic:samples=4000,features=32,classes=4", "--layers", "32", "--batch", "64",
        "--epochs", "4", "--overhead", "0")
RUNS = {
    "plain": ("--comm", "allreduce:algo=sra"),
    "coded": ("--comm", "allreduce:algo=sra", "--compress", "qsgd:bits=8"),
    "overlapped": ("--comm", "iallreduce:bucket=1K"),
    "skew": ("--inject-skew", "1:1ms", "--steps", "100"),
    "off": ("--profile", "off"),
    "auto": ("--compress", "auto:budget=0.3"),
}
UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}


def seconds(table, row, column):
    """A figure of a table by the start of its column's title, in seconds."""
    titles = [title for title in table.columns if title.startswith(column + " (")]
    unit = titles[0].rpartition("(")[2].rstrip(")")
    value = row[table.columns.index(titles[0])]
    return None if value is None else value * UNITS[unit]


def drawn(chart):
    """The figure as a page would have it, on a canvas that can measure its texts."""
    with matplotlib.style.context(["default", figure.STYLE]):
        fig = Figure(figsize=figure.SIZE_IN, layout="constrained")
        FigureCanvasAgg(fig)
        chart.draw(fig)
        fig.draw_without_rendering()
    return fig


def unseen(axis):
    """The labels of ticks that lie outside of the axis."""
    low, high = sorted(axis.get_view_interval())
    return [label for tick in axis.get_major_ticks() if not low <= tick.get_loc() <= high
            for label in (tick.label1, tick.label2)]


def overprints(fig):
    """Pairs of texts in a drawn figure that lie over each other by more than a pixel."""
    hidden = {id(text) for ax in fig.axes for axis in (ax.xaxis, ax.yaxis) for text in unseen(axis)}
    boxes = [(text.get_text(), text.get_window_extent()) for text in fig.findobj(Text)
             if text.get_visible() and text.get_text().strip() and id(text) not in hidden]
    return [(one, other) for (one, a), (other, b) in itertools.combinations(boxes, 2)
            if min(a.x1, b.x1) - max(a.x0, b.x0) > 1 and min(a.y1, b.y1) - max(a.y0, b.y0) > 1.5]


class ChartCase(unittest.TestCase):
    """`info` and `runs`: run.json and model.Run of each of RUNS, by name; `dir` holds their folders.

    They are made once for a file of tests."""

    dir, info, runs = None, {}, {}

    @classmethod
    def setUpClass(cls):
        if ChartCase.dir is not None:
            return
        holder = tempfile.TemporaryDirectory()
        unittest.addModuleCleanup(holder.cleanup)
        ChartCase.dir = holder.name
        for name, words in RUNS.items():
            ChartCase.info[name] = gwrun.train(2, os.path.join(cls.dir, name), *TASK, *words, ceilings=None)
        (found,) = runs.read_results(cls.dir)
        assert not found.left_out, found.left_out
        ChartCase.runs = {run.folder: run for cell in found.cells for run in cell.runs}

    def run_of(self, name, block="0", **changes):
        run = copy.copy(self.runs[name])
        run.block, run.means, run.info = block, dict(run.means), copy.deepcopy(run.info)
        run.marks = []  # of a busy machine
        for key, value in changes.items():
            setattr(run, key, value)
        return run

    def results(self, cells, base=None):
        """Results of {label: runs}."""
        made = [model.Cell(label, label, {"what": label}, found, label == base)
                for label, found in cells.items()]
        return model.Results("study", ".", None, {"what": list(cells)}, made,
                             next((cell for cell in made if cell.baseline), None), [], [])

    def build(self, module, cells, base=None):
        chart = module.build(self.results(cells, base))
        for row in chart.table.rows:
            self.assertEqual(len(row), len(chart.table.columns))
        return chart

    def one(self, module, *names):
        """The chart of single runs, a configuration each."""
        return self.build(module, {name: [self.run_of(name)] for name in names})

    def reason(self, module, cells, base=None):
        with self.assertRaises(model.NotShown) as caught:
            module.build(self.results(cells, base))
        return str(caught.exception)
