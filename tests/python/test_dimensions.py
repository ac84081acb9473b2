"""Runs over a mesh, as the tools show them: by dimension, with the bubble, and beside runs without one,
of which nothing more is said."""

import csv
import json
import os
import statistics
from unittest import mock

import gwrun
from reportcase import ANALYSIS, TASK

from reporting import charts, csvrows, figure, page, runs, summary
from reporting.charts import dimensions, traffic
from reporting.model import NotShown

STEPS = ("--steps", 40, "--overhead", 0)
RUNS = {"plain": (2, ()), "one": (1, ()),
        "pipe": (2, ("--mesh", "pipe=2", "--microbatches", 4, "--recompute", "on")),
        "tensor": (2, ("--mesh", "tensor=2", "--tensor-algo", "ring"))}
NAMES = ("data", "pipe", "tensor")


def tool(name, *words):
    """What it prints."""
    done = gwrun.script(os.path.join(ANALYSIS, name), *words)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


class Dimensions(gwrun.Shared):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for name, (ranks, words) in RUNS.items():
            gwrun.train(ranks, cls.path(name), *TASK, *STEPS, "--trace", *words)
        (cls.results,) = runs.read_results(cls.dir)
        cls.cells = {cell.runs[0].folder: cell for cell in cls.results.cells}

    def show(self, *names):
        return tool("show", *map(self.path, names), "--ascii")

    def summary(self, name):
        return gwrun.run_json(self.path(name))["results"]["summary"]

    def test_train_says(self):
        said = [gwrun.run(2, "train", *TASK, "--steps", 12, "--mesh", mesh).stdout
                for mesh in ("pipe=2", "tensor=2")]
        self.assertRegex(said[0], r" wire bytes a rank; bubble [0-9.]+ us, [0-9.]+% of the step\n")
        self.assertRegex(said[1], r" wire bytes a rank\n")

    def test_show(self):
        text = self.show("pipe")
        for row in ("along pipe ", "waiting (bubble) ", "recomputed ", "bubble: "):
            self.assertEqual(text.count(row), 1, row)
        for absent in ("along data", "along tensor"):  # one rank each
            self.assertNotIn(absent, text)
        simulated = gwrun.run_json(self.path("pipe"))["results"]["simulated"]
        self.assertIn(f"{1e6 * simulated['bubble_s']:.1f} us ({100 * simulated['bubble_share']:.1f}%) of a "
                      f"step of {1e6 * simulated['step_s']:.1f} us", text)
        for name in ("plain", "one"):
            for row in ("along ", "bubble", "recomputed"):
                self.assertNotIn(row, self.show(name))
        both = self.show("tensor", "plain")
        self.assertRegex(both, r"\n +along tensor +[0-9.]+ [mu]s +[0-9.]+% +- *\n")
        self.assertNotIn("bubble", both)

    def test_show_as_json(self):
        found = json.loads(tool("show", *map(self.path, RUNS), "--json"))["runs"]
        for name, shown in zip(RUNS, found):
            whole = self.summary(name)
            mesh = {"pipe": ["pipe"], "tensor": ["tensor"]}.get(name)
            self.assertEqual(shown["dimensions"], mesh and {
                dim: whole["dimensions"][dim] for dim in mesh})
            self.assertEqual(shown["bubble_s"], whole["bubble_s"])
            self.assertEqual(shown["simulated"] is None, name != "pipe")

    def test_table(self):
        lines = tool("table", *map(self.path, RUNS)).splitlines()
        self.assertLessEqual(max(map(len, lines)), 80)
        titles, *rows = (line.split() for line in (lines[0], *lines[3:7]))
        bubble = f"{1e3 * self.summary('pipe')['bubble_s']:.3f}"
        for row in rows:
            row = [cell for cell in row if cell not in "*!^?%"]
            self.assertEqual(len(row), len(titles) - (row[0] != "pipe"), row)
            self.assertEqual(row[titles.index("bubble")] == bubble, row[0] == "pipe")
        self.assertNotIn("bubble", tool("table", self.path("plain"), self.path("tensor")))

    def test_export(self):
        found = {row["folder"]: row for row in csv.DictReader(
            tool("export", self.dir).splitlines())}
        self.assertEqual([found["pipe"][f"mesh.{dim}"] for dim in NAMES], ["1", "2", "1"])
        self.assertEqual([found["plain"][f"mesh.{dim}"] for dim in NAMES], ["", "", ""])
        for name, row in found.items():
            self.assertEqual(bool(row["bubble_s"]), name == "pipe")
            self.assertEqual(bool(row["bubble_simulated_s"]), name == "pipe")
        self.assertEqual(float(found["pipe"]["mean.pipe_skew_s"]), float(found["pipe"]["bubble_s"]))
        self.assertFalse({f"mean.{name}" for name in ("replica", "stage", "shard")} & found["pipe"].keys())
        alone = csv.DictReader(tool("export", self.path("plain")).splitlines())
        self.assertFalse([name for name in alone.fieldnames if "mesh" in name or "bubble" in name])

    def test_report_names_the_mesh(self):
        """A run without a mesh is one over data beside these."""
        labels = {folder: cell.levels["mesh"] for folder, cell in self.cells.items()}
        self.assertEqual(labels, {"plain": "data=2", "one": "data=1", "pipe": "pipe=2",
                                  "tensor": "tensor=2"})
        with mock.patch.object(charts, "ORDER", ["dimensions"]):
            text, drawn = page.render([self.results], "meshes")
        self.assertEqual([len(one.shown) for one in drawn], [1])
        for cell in self.cells.values():
            self.assertIn(cell.label, text)
            self.assertIn(cell.levels["mesh"], text)

    def test_chart(self):
        chart = dimensions.build(self.results)
        rows = {folder: next(row for row in chart.table.rows if row[0].endswith(cell.label))
                for folder, cell in self.cells.items()}
        for name, row in rows.items():
            measured = self.summary(name)
            shown = dict(zip((title.partition(" (")[0] for title in chart.table.columns), row))
            self.assertEqual(shown["bubble"] is None, name != "pipe")
            if name in NAMES:
                self.assertIsNotNone(shown[f"bytes along {name}"])
                for other in set(NAMES) - {name}:
                    self.assertIsNone(shown[f"communication along {other}"])
                share = shown[f"waiting along {name}"] / shown[f"communication along {name}"]
                of = measured["dimensions"][name]
                self.assertAlmostEqual(share, of["waiting_s"] / of["comm_s"], places=6)
        self.assertIn("Stages wait for one another for", chart.see)
        self.assertEqual(figure.inline_svg(chart).count("<svg"), 1)
        plain = [cell for cell in self.results.cells if cell.runs[0].folder in ("plain", "one")]
        with self.assertRaises(NotShown), mock.patch.object(self.results, "cells", plain):
            dimensions.build(self.results)

    def test_bits_are_of_gradients(self):
        """Hops and tensor sums are none of the bytes that an element of the gradient takes."""
        self.assertIsNone(traffic.bits(self.cells["tensor"].runs[0]))
        self.assertAlmostEqual(traffic.bits(self.cells["plain"].runs[0]), 32)

    def test_summary(self):
        rows = list(csv.DictReader(summary.text([self.results]).splitlines()))
        by_mesh = {row["level.mesh"]: row for row in rows}
        self.assertEqual(by_mesh["data=2"]["pipe_skew_s"], "")
        with open(os.path.join(self.path("tensor"), "batches.csv"), "rb") as file:
            sent = [row["tensor_bytes"] for _, row in csvrows.rows_of(file, ("tensor_bytes",))]
        self.assertAlmostEqual(float(by_mesh["tensor=2"]["tensor_bytes"]), statistics.fmean(sent))
        for row in rows:
            whole = sum(float(row[name]) for name in (
                "forward_s", "backward_s", "recompute_s", "update_s"))
            self.assertAlmostEqual(float(row["compute_s"]), whole, delta=1e-6 * whole)
