"""gradwire.analysis: run folders as tables and charts, which are those of the tools, and the example's notebook."""

import csv
import io
import json
import os
import shutil
import subprocess
import sys
import unittest

import gwrun
from reportcase import ReportCase, call

PACKAGE = os.path.join(gwrun.SOURCE, "python")
sys.path.append(PACKAGE)
import gradwire.analysis as ga

EXAMPLE = os.path.join(gwrun.SOURCE, "examples", "analysis.ipynb")
PYTHON = os.environ.get("TORCH_PYTHON", sys.executable)
EXECUTE = """
import sys, nbformat
from nbclient import NotebookClient
notebook = nbformat.read(sys.argv[1], 4)
NotebookClient(notebook, resources={"metadata": {"path": "."}}).execute()
nbformat.write(notebook, "done.ipynb")
"""


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


class Package(ReportCase):
    def same(self, table, rows):
        """A DataFrame holds what the rows of a CSV file do, in columns of the same order."""
        self.assertEqual(list(table.columns), list(rows[0]))
        self.assertEqual(len(table), len(rows))
        for name in table.columns:
            for value, text in zip(table[name], (row[name] for row in rows)):
                if text == "":
                    self.assertTrue(value is None or value != value or value == "", (name, value))
                elif isinstance(value, str):
                    self.assertEqual(value, text.removeprefix("'"), name)
                else:
                    self.assertEqual(f"{float(value):.9g}", f"{float(text):.9g}", name)

    def refused(self, words, call, *given, error=ga.BadInput, **more):
        with self.assertRaises(error) as caught:
            call(*given, **more)
        self.assertIn(words, str(caught.exception))
        self.assertNotIn("\n", str(caught.exception))

    def test_runs_are_the_rows_of_export(self):
        folder = self.study()
        self.record("demo/b01-s1/comm=allreduce", state="failed")
        table = ga.runs(folder)
        self.same(table.drop(columns="path"), rows_of(gwrun.well(call("export", folder))))
        for path in table["path"]:
            self.assertTrue(os.path.exists(os.path.join(path, "run.json")), path)
        self.assertEqual(list(table["state"]), ["done"] * 3 + ["failed"])

    def test_batches_and_epochs_are_the_files(self):
        folder = self.copy("one")
        self.same(ga.batches(folder), rows_of(gwrun.read(folder, "batches.csv")))
        table = ga.runs(self.dir)
        self.same(ga.batches(table.iloc[0]), rows_of(gwrun.read(folder, "batches.csv")))
        self.assertEqual(ga.batches(table, warm_up=False)["step"].min(), 11)
        rows = [{name: text for name, text in row.items() if name != "replica_hash"}
                for row in rows_of(gwrun.read(folder, "epochs.csv"))]
        self.same(ga.epochs(folder), rows)

    def test_summary_is_summary_csv(self):
        folder = self.study()
        gwrun.well(call("report", folder, "--baseline", "comm=iallreduce", draws=[]))
        self.same(ga.summary(folder, baseline="comm=iallreduce"), rows_of(gwrun.read(folder, "summary.csv")))

    def test_compare_is_the_tool(self):
        folder = self.study(blocks=3)
        table = ga.runs(folder)
        one, other = (table[table["cell"] == f"comm={comm}"] for comm in ("allreduce", "iallreduce"))
        (row,) = ga.compare(one, one).to_dict("records")
        self.assertEqual((row["ratio"], row["a_runs"], row["a"]), (1, 3, one["step_s"].median()))
        self.assertFalse(row["regressed"])
        self.assertIn(row["verdict"], gwrun.well(call("compare", folder, folder)))
        self.refused("no cell is in both", ga.compare, one, other)
        self.refused("did you mean accuracy?", ga.compare, one, one, metric="acuracy")

    def test_charts_are_those_of_the_report(self):
        folder, out = self.study(blocks=3), self.path("tables")
        gwrun.well(call("report", folder, "--tables", out))
        page = gwrun.read(folder, "report.html")
        shown = {name.removesuffix(".csv") for name in os.listdir(out)}
        self.assertLessEqual({"time_stack", "step_times", "accuracy", "baseline"}, shown)
        runs = ga.runs(folder)
        for name in ga.plot.__all__:
            chart = getattr(ga.plot, name)
            if name not in shown:
                with self.assertRaises(ga.NotShown) as caught:
                    chart(runs)
                self.assertIn(str(caught.exception).split("'")[0], page)
                continue
            figure = chart(runs)
            self.same(figure.table, rows_of(gwrun.read(out, f"{name}.csv")))
            self.assertTrue(figure.axes)
            data, size = figure._repr_png_()
            self.assertEqual((data[:4], int.from_bytes(data[16:20], "big")), (b"\x89PNG", 2 * size["width"]))

    def test_some_runs(self):
        """Rows that a reader chose."""
        for comm in ("allreduce", "iallreduce"):
            self.copy(comm, comm)
        runs = ga.runs(self.dir)
        for chosen, labels in ((runs, ["allreduce", "iallreduce"]), (runs[runs["folder"] == "iallreduce"], ["iallreduce"])):
            shown = ga.plot.time_stack(chosen).table["configuration"]
            self.assertEqual([label.removeprefix("* ") for label in shown], labels)

    def test_a_folder_that_changed_is_read_again(self):
        folder = self.copy("one")
        before = ga.plot.time_stack(folder).table
        gwrun.change(folder, lambda info: info["results"]["summary"].update(wall_s=1.0))
        self.assertNotEqual(before.iloc[0, 2], ga.plot.time_stack(folder).table.iloc[0, 2])

    def test_refusals(self):
        self.study("one", blocks=1)
        self.study("two", blocks=1)
        runs = ga.runs(self.dir)
        self.refused("of 2 (one, two)", ga.plot.time_stack, runs)
        self.refused("comm=allreduce?", ga.plot.time_stack, self.path("one"), baseline="comm=allreduse")
        self.refused("the table is empty", ga.summary, runs[:0])
        self.refused("not a dict", ga.summary, {})
        self.refused("not a DataFrame of 4 rows", ga.batches, runs)
        self.refused("name a folder", ga.runs)
        os.mkdir(self.path("empty"))
        self.refused("no run of gradwire", ga.runs, self.path("empty"))
        self.refused("No such file", ga.runs, self.path("nowhere"))
        self.refused("no factor", ga.plot.sweep, self.path("one"), error=ga.NotShown)

    def test_without_its_packages(self):
        done = gwrun.finished([sys.executable, "-B", "-c", f"import sys, importlib.util as find; sys.path.append({PACKAGE!r}); "
                               "find.find_spec = lambda name: None; import gradwire.analysis"])
        line = done.stderr.splitlines()[-1]
        self.assertEqual(line, f"ImportError: gradwire.analysis: {sys.executable} has no module matplotlib, pandas, scipy: "
                               "pip install matplotlib pandas scipy")


def has(*modules):
    done = subprocess.run([PYTHON, "-c", f"import {', '.join(modules)}"], capture_output=True, check=False)
    return done.returncode == 0


@unittest.skipUnless(has("nbclient", "ipykernel"), f"{PYTHON} has no nbclient, or no ipykernel")
class Notebook(gwrun.Case):
    def test_the_example(self):
        """All of its cells, the first of which makes the runs."""
        cells = gwrun.read_json(EXAMPLE)["cells"]
        for name, program in (("mpiexec", gwrun.MPIEXEC), ("gradwire", gwrun.GRADWIRE)):
            os.symlink(shutil.which(program), self.path(name))
        env = {**os.environ, "PYTHONPATH": PACKAGE, "PYTHONDONTWRITEBYTECODE": "1", "PATH": f"{self.dir}:{os.environ['PATH']}"}
        gwrun.well(gwrun.finished([PYTHON, "-c", EXECUTE, EXAMPLE], cwd=self.dir, env=env))
        outputs = [one for cell in json.loads(gwrun.read(self.dir, "done.ipynb"))["cells"] for one in cell.get("outputs", ())]
        shown = [one["data"] for one in outputs if one["output_type"] == "execute_result"]
        self.assertEqual(len(shown) + 1, sum(cell["cell_type"] == "code" for cell in cells))
        self.assertEqual(len(os.listdir(self.path("runs"))), 9)
        self.assertEqual(sum("image/png" in data for data in shown), 2)
        self.assertEqual(sum("text/html" in data for data in shown), 5)
        self.assertTrue(os.path.exists(self.path("accuracy.pdf")))
