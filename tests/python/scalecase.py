"""The study of real runs that test_charts_scale.py looks at, and studies of known times made of it."""

import copy
import dataclasses
import os
import random
import shutil
import tempfile
import unittest

import gwrun
import reportcase

from reporting import model, rows, runs

TASK = ("--data", "synthetic:samples=600,features=16,classes=4,seed=1", "--layers", "16",
        "--batch", "40", "--epochs", "2", "--ceilings", "off", "--overhead", "0")
RANKS, CODECS, BLOCKS = ("1", "2"), ("none", "fp16", "qsgd"), 3


def scaled(path, factor, points):
    """Rewrites a table of a run: times are `factor` times as long, accuracies so much higher."""
    lines = gwrun.rows(path)
    for line in lines:
        for name, text in line.items():
            if text and name.endswith("_s"):
                line[name] = f"{float(text) * factor:.9g}"
            elif text and name == "test_accuracy":
                line[name] = f"{min(1.0, float(text) + points):.9g}"
    gwrun.write_rows(path, lines)


def longer(figures, factor):
    """The seconds among a summary's figures `factor` times as long."""
    return {name: longer(value, factor) if isinstance(value, dict)
            else value * factor if isinstance(value, float) and name.endswith("_s") else value
            for name, value in figures.items()}


def repeat(run, out, block):
    """What another block's run of the same cell might have left: no two are alike."""
    shutil.copytree(run, out)
    factor = 1 + 0.05 * block + random.Random(out[-40:]).uniform(0, 0.02)
    scaled(os.path.join(out, "batches.csv"), factor, 0)
    scaled(os.path.join(out, "epochs.csv"), factor, -0.01 * block)
    info = gwrun.run_json(out)
    info["seed"] = block + 1
    info["results"]["summary"] = longer(info["results"]["summary"], factor)
    gwrun.write(os.path.join(out, "run.json"), info)


def make_study(folder):
    """The first block's runs are real, and the others repeat them."""
    def make(cell, block, out):
        if block:
            repeat(os.path.join(folder, f"b00-s1/{cell['id']}"), out, block)
        else:
            gwrun.train(cell["ranks"], out, *TASK, "--compress", cell["levels"]["compress"])
    reportcase.write_study(folder, "demo", [reportcase.cell_of(ranks=ranks, compress=codec)
                                            for ranks in RANKS for codec in CODECS], BLOCKS, make, seeds=True,
                           report={"x": "ranks", "compare_within": ["compress"]})


def row_of(chart, **wanted):
    """The only row of the chart's table with these figures, as {column: figure}."""
    found = [dict(zip(chart.table.columns, row)) for row in chart.table.rows]
    found = [row for row in found if all(row[name] == value for name, value in wanted.items())]
    assert len(found) == 1, (wanted, chart.table.rows)
    return found[0]


def setUpModule():
    keep = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(keep.cleanup)
    Case.folder = keep.name
    make_study(keep.name)
    Case.read = runs.read_results(keep.name)[0]


class Case(unittest.TestCase):
    """`folder`: a study; `results`: what was read of it, fresh for each test."""

    def setUp(self):
        self.results = copy.deepcopy(self.read)
        self.hints = self.results.study["report"]
        del self.hints["compare_within"]
        for run in self.results.runs:
            run.marks = []  # of a busy machine

    def files(self, ranks, codec, name):
        """The rows of a file of each block's run."""
        for block in range(BLOCKS):
            path = os.path.join(self.folder, f"b{block:02d}-s{block + 1}",
                                f"ranks={ranks},compress={codec}", name)
            yield gwrun.rows(path)

    def finals(self, ranks, codec):
        """The last accuracy of each block's run."""
        return [float(lines[-1]["test_accuracy"]) for lines in self.files(ranks, codec, "epochs.csv")]

    def steps(self, ranks, codec):
        """The step time of each block's run."""
        folders = (os.path.join(self.folder, f"b{block:02d}-s{block + 1}",
                                f"ranks={ranks},compress={codec}") for block in range(BLOCKS))
        return [gwrun.run_json(folder)["results"]["summary"]["wall_s"] for folder in folders]

    def cell(self, ranks, codec):
        return next(cell for cell in self.results.cells
                    if cell.levels == {"ranks": ranks, "compress": codec})

    def name(self, ranks, codec):
        """As tables have it."""
        return rows.label(self.cell(ranks, codec))


def workers(results, seconds, codec="none", **machine):
    """Cells of {ranks: seconds of a step}, made from a real run of 1 rank; only the number of ranks and
    the step times are changed."""
    of = next(cell for cell in results.cells if cell.levels == {"ranks": "1", "compress": codec})
    cells = []
    for ranks, step in seconds.items():
        made = [dataclasses.replace(run, info=copy.deepcopy(run.info), step_s=step, marks=[])
                for run in of.runs]
        for run in made:
            run.info["machine"].update(ranks=ranks, workers=ranks, **machine)
            run.levels = {"ranks": str(ranks), "compress": codec}
        cells.append(model.Cell(f"ranks={ranks},compress={codec}", f"ranks {ranks}", made[0].levels,
                                made))
    return cells


def with_cells(results, cells):
    for cell in cells:
        cell.baseline = cell is cells[0]
    factors = {name: list(dict.fromkeys(cell.levels[name] for cell in cells))
               for name in cells[0].levels}
    return dataclasses.replace(results, cells=cells, factors=factors, baseline=cells[0])
