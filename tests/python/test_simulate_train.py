"""experiments/simulate-train: a study of `gradwire train` with cells of simulated ranks, by what one rank measures."""

import csv
import json
import os
import sys
import tempfile
import unittest

import gwrun

TOOL = os.path.join(gwrun.SOURCE, "experiments", "simulate-train")
MODEL = ("--data", "synthetic:samples=240,features=20,classes=4", "--layers", "16", "--batch", "96")


class SimulateTrain(unittest.TestCase):
    def setUp(self):
        self.dir = self.enterContext(tempfile.TemporaryDirectory())

    def call(self, *words):
        return gwrun.finished([sys.executable, "-B", TOOL, "--build", os.path.dirname(gwrun.GRADWIRE), *map(str, words)])

    def test_a_rank_computes_its_share(self):
        """12 of 13 ranks compute, 8 samples each; what one of them took stands in the run's folder."""
        out = os.path.join(self.dir, "run")
        done = self.call("--ranks", 13, "--link", "1gbit", *MODEL, "--steps", 5, "--comm",
                         "ps:algo=root,dedicated=1", "--quiet", "--out", out)
        self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))
        step = json.loads(gwrun.read(os.path.join(out, "run.json")))["simulated"]["step"]
        self.assertEqual([step[key] for key in ("model", "parameters", "steps", "compute", "source")],
                         ["mlp --layers 16", 404, 5, "spin", "measured for this run"])
        self.assertGreater(min(step["forward_s"], step["backward_s"], step["optimizer_s"]), 0)

    def test_study(self):
        """Simulated ranks send what real ones do, beside them; a run of each cell is no interval, for it is measured."""
        spec, out = os.path.join(self.dir, "more.yaml"), os.path.join(self.dir, "study")
        gwrun.write(spec, f"claim: x\nbase: {' '.join(MODEL)} --steps 2 --comm 'allreduce:algo=ring' --save-model off\n"
                    "factors: {place: {real: {ranks: 2}, few: {ranks: 2, link: 1gbit}, many: {ranks: 64, link: 1gbit}}}\n")
        runner, build = os.path.join(gwrun.SOURCE, "experiments", "run"), os.path.dirname(gwrun.GRADWIRE)
        gwrun.said(runner, spec, "--build", build, "--out", out)
        table = gwrun.said(os.path.join(gwrun.SOURCE, "analysis", "export"), out, "--compact")
        rows = {row["level.place"]: row for row in csv.DictReader(table.splitlines())}
        self.assertEqual([rows[place]["ranks"] for place in ("real", "few", "many")], ["2", "2", "64"])
        self.assertEqual(["by computation that was measured for this run" in rows[place]["marks"]
                          for place in ("real", "few", "many")], [False, True, True])
        self.assertEqual(rows["real"]["run_wire_bytes"], rows["few"]["run_wire_bytes"])
        gwrun.write(spec, gwrun.read(spec).replace("--steps 2", "--steps 2 --mesh pipe=3"))
        done = gwrun.finished([runner, spec, "--build", build, "--dry-run"])
        self.assertIn("pipe=3 takes a multiple of 3 ranks, and there are", done.stderr)
        self.assertEqual(done.returncode, 2)

    def test_mesh(self):
        """A stage computes what one rank measured of microbatches, and sends what a real one does."""
        words = (*MODEL, "--layers", "16,16,16", "--mesh", "data=2,pipe=2", "--microbatches", 4, "--timetable", "zb",
                 "--steps", 2, "--comm", "allreduce:algo=ring")
        out, real = os.path.join(self.dir, "run"), os.path.join(self.dir, "real")
        done = self.call("--ranks", 4, "--link", "1gbit", *words, "--out", out)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        gwrun.train(4, real, *words)
        one, other = (json.loads(gwrun.read(os.path.join(folder, "run.json"))) for folder in (out, real))
        self.assertEqual((one["simulated"]["step"]["batch"], sum(one["mesh"]["layers"])), (48, 4))
        self.assertEqual([sum(int(row["pipe_bytes"]) for row in gwrun.batches(folder)) for folder in (out, real)],
                         [2 * 2 * 2 * 48 * 16 * 4] * 2)
        self.assertEqual(one["simulated"]["step"]["source"], "measured for this run")
        self.assertEqual(other["mesh"]["microbatches"], one["mesh"]["microbatches"])

    def test_models(self):
        """Simulated ranks send what real ones do, of any model, but for a GPT's norms, which its tensor ranks gather."""
        text = os.path.join(self.dir, "text")
        gwrun.write(text, "so it goes, " * 400)
        for mesh, short, model in (
                ("data=2", 0, ("--model", "cnn", "--data", "synthetic:samples=240,features=256,classes=4")),
                ("tensor=2", 0.03, ("--model", "gpt:layers=1,heads=2,width=32,context=16", "--data", f"text:{text}"))):
            out, real = (os.path.join(self.dir, f"{name} {mesh}") for name in ("run", "real"))
            words = (*model, "--batch", 8, "--steps", 2, "--comm", "allreduce:algo=ring", "--mesh", mesh,
                     *(("--tensor-algo", "ring") if "tensor" in mesh else ()))
            done = self.call("--ranks", 2, "--link", "1gbit", *words, "--out", out)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            one, other = (json.loads(gwrun.read(os.path.join(folder, "run.json")))["results"]["summary"]["wire_bytes"]
                          for folder in (out, gwrun.train(2, real, *map(str, words)) and real))
            self.assertTrue((1 - short) * other <= one <= other > 0, (mesh, one, other))

    def test_refused(self):
        for words, why in (((*MODEL, "--link", "1gbit"), "--ranks is missing"),
                           ((*MODEL, "--ranks", 2), "--link is missing"),
                           ((*MODEL, "--ranks", "two", "--link", "1gbit"), "--ranks two: must be a whole number"),
                           (("--ranks", 2, "--link"), "--link: nothing follows"),
                           (("--nonesuch", 2), "'--nonesuch' is not an option of gradwire train or simulate"),
                           ((*MODEL, "--ranks", 2, "--link", "1gbit", "--clip-norm", 1), "a simulated step does not have it"),
                           ((*MODEL, "--ranks", 2, "--link", "1gbit", "--steps", "few"), "--steps few: must be a whole"),
                           ((*MODEL, "--ranks", 2, "--link", "1gbit", "--backend", "naive"), "--backend is not"),
                           ((*MODEL, "--ranks", 2, "--link", "1gbit", "--tensor-split", "rows"), "--tensor-split rows: must be"),
                           ((*MODEL, "--ranks", 2, "--link", "1gbit", "--tensor-split", "columns", "--mesh", "tensor=1"),
                            "--tensor-split: no layer is cut: add tensor to --mesh"),
                           ((*MODEL, "--ranks", 2, "--link", "1gbit", "--mesh", "tensor=3", "--check"),
                            "--mesh tensor=3 takes a multiple of 3 ranks, and there are 2"),
                           ((*MODEL, "--ranks", 2, "--link", "fast"), "--link: rate: fast"),
                           ((*MODEL, "--ranks", 2, "--link", "1gbit", "--lr", "high"), "lr=high"),
                           (("--build", "/nonesuch", "--ranks", 2), "/nonesuch/gradwire: cannot be run")):
            with self.subTest(why=why):
                done = self.call(*words)
                self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (2, "", 1), done.stderr)
                self.assertTrue(done.stderr.startswith("simulate-train: "), done.stderr)
                self.assertIn(why, done.stderr)


if __name__ == "__main__":
    unittest.main()
