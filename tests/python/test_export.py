"""analysis/export: a row per run, whatever became of it."""

import csv
import importlib.util
import os
import shutil
import subprocess
import sys

import gwrun
from reportcase import ANALYSIS, ReportCase, call, module_of


class Export(ReportCase):
    def rows(self, *words):
        return list(csv.DictReader(gwrun.quiet(call("export", *words)).splitlines()))

    def test_a_row_of_each_run_of_all_folders(self):
        folder, other = self.study("one"), self.study("two", blocks=1)
        path = os.path.join(folder, "b01-s1", "comm=allreduce", "experiment.json")
        gwrun.write(path, {**gwrun.read_json(path), "state": "failed"})
        found = self.rows(folder, other)
        self.assertEqual([(row["study"], row["state"]) for row in found],
                         [("one", "done")] * 3 + [("one", "failed")] + [("two", "done")] * 2)
        info = gwrun.run_json(folder, "b00-s1", "comm=allreduce")
        first = found[0]
        self.assertEqual((first["cell"], first["level.comm"], first["command"], first["commit"]),
                         ("comm=allreduce", "allreduce", info["command"], info["commit"]))
        self.assertAlmostEqual(float(first["test_loss"]), info["results"]["test_loss"])
        self.assertEqual((first["bound_s"], found[3]["step_s"]), ("", ""))  # blank: not measured
        self.assertEqual(found[3]["why"], "exit status 0")

    def test_files(self):
        self.copy("a")
        done = call("export", self.dir, "--out", self.path("all.csv"))
        self.assertEqual((done.returncode, done.stdout),
                         (0, f"export: {self.path('all.csv')}: 1 rows, 1 of finished runs\n"))
        done = call("export", self.dir, "--out", self.path("all.parquet"))
        if importlib.util.find_spec("pyarrow"):
            self.assertEqual(done.returncode, 0, done.stderr)
        else:
            self.assertEqual(done.returncode, 2)
            self.assertRegex(done.stderr, "^export: .* pyarrow, .* cannot import .No module named .*\n$")
        gwrun.quiet(call("export", self.dir, "--out", self.path("all.json")))
        row, = gwrun.read_json(self.path("all.json"))
        as_csv, = csv.DictReader(gwrun.read(self.path("all.csv")).splitlines())
        self.assertEqual({name: value in (None, "") for name, value in row.items()},  # "": a run without marks
                         {name: text == "" for name, text in as_csv.items()})
        self.assertAlmostEqual(row["test_loss"], float(as_csv["test_loss"]))
        for name in ("all.txt", "all"):
            gwrun.refusal(call("export", self.dir, "--out", self.path(name)), "ends in .csv, .json, .parquet")
            self.assertFalse(os.path.lexists(self.path(name)))

    def test_what_is_no_file_is_not_replaced(self):
        """Links are followed, pipes written to; as tests/unit/test_file.c has it of the program."""
        self.copy("a")
        whole = call("export", self.dir).stdout.encode()
        os.mkdir(self.path("sub"))
        for name, to in (("link.csv", "sub/there.csv"), ("chain.csv", "link.csv"), ("circle.csv", "circle.csv")):
            os.symlink(to, self.path(name))
        for name in ("link.csv", "chain.csv"):  # first to what does not exist yet
            gwrun.quiet(call("export", self.dir, "--out", self.path(name)))
            with open(self.path("sub/there.csv"), "rb") as file:
                self.assertEqual(file.read(), whole)
            os.truncate(self.path("sub/there.csv"), 0)
            self.assertTrue(os.path.islink(self.path(name)))
        os.mkfifo(self.path("pipe"))
        gwrun.refusal(call("export", self.dir, "--out", self.path("pipe")), "nothing reads this pipe")
        fd = os.open(self.path("pipe"), os.O_RDONLY | os.O_NONBLOCK)
        gwrun.quiet(call("export", self.dir, "--out", self.path("pipe")))
        self.assertEqual(os.read(fd, 1 << 16), whole)
        os.close(fd)
        for name in ("sub", "circle.csv"):
            gwrun.refusal(call("export", self.dir, "--out", self.path(name)))
        self.assertEqual(os.listdir(self.path("sub")), ["there.csv"])  # nothing is left over

    def test_compact(self):
        """What a claim can be of, of runs that have a cell; claims are judged by it (test_claims.py)."""
        folder = self.study("one")
        self.record("one/b01-s1/comm=allreduce", state="failed")
        shutil.rmtree(os.path.join(folder, "b01-s1", "comm=iallreduce"))  # not run
        found, whole = self.rows(folder, "--compact"), self.rows(folder)
        self.assertEqual([row["state"] for row in found], ["done", "done", "failed"])
        self.assertEqual([row["state"] for row in whole], ["done", "done", "failed", "not run"])
        self.assertLess(set(found[0]), set(whole[0]))
        self.assertFalse({"command", "folder", "label", "commit", "mean.memory_ctr_s"} & set(found[0]))
        self.assertLessEqual({"cell", "level.comm", "block", "seed", "cores", "ranks", "nodes", "marks", "step_s",
                              "mean.forward_s", "elapsed_s", "peak_bytes.total"}, set(found[0]))
        for name, text in found[0].items():
            kept = whole[0][name]
            self.assertTrue(text == kept or abs(float(text) - float(kept)) <= 1e-6 * abs(float(kept)), name)
        self.assertEqual((found[2]["cell"], found[2]["level.comm"]), ("comm=allreduce", "allreduce"))
        self.assertEqual(found[2]["state"], "failed")

    def test_a_column_of_parquet_has_one_type(self):
        column_of = module_of("export").column_of
        for values, made in (([1, None, 2], [1, None, 2]), ([1, None, 2.5], [1.0, None, 2.5]),
                             ([1, "a", None], ["1", "a", None]), ([True, 2], ["True", "2"])):
            found = column_of(values)
            self.assertEqual((found, list(map(type, found))), (made, list(map(type, made))))

    def test_standard_output_is_utf_8_everywhere(self):
        self.copy("caf\u00e9")
        done = subprocess.run([sys.executable, os.path.join(ANALYSIS, "export"), self.dir], check=False,
                              capture_output=True, env={**os.environ, "PYTHONIOENCODING": "ascii"})
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.assertIn("caf\u00e9", done.stdout.decode())

    def test_mistakes(self):
        os.mkdir(self.path("empty"))
        for words in ([self.path("empty")], [self.path("nowhere")], [],
                      [self.copy("a"), "--out", self.path("no", "where.csv")]):
            gwrun.refusal(call("export", *words))
