"""The naive backend as a run: its folder, its ledger, its model, and what it refuses.
tests/mpi/test_naive.c compares each form of it with the fast one."""

import os
import re

import gwrun
import identities

SMALL = ["--data", "synthetic:samples=600,features=20,classes=4,test=0.2", "--layers", "12,8",
         "--batch", 20, "--epochs", 2, "--ceilings", "off"]  # 24 steps each
PARAMETERS = 20 * 12 + 12 + 12 * 8 + 8 + 8 * 4 + 4
NAIVE = ["--backend", "naive"]
ROOT = ["--backend", "naive:loops=blocked,sum=reduction,schedule=dynamic,exchange=root"]
REFUSED = {"comm": ["--comm", "iallreduce"], "compress": ["--compress", "bf16"],
           "error-feedback": ["--error-feedback", "on"], "wire-check": ["--wire-check", "on"],
           "update": ["--update", "lazy"], "momentum": ["--momentum", 0.9],
           "weight-decay": ["--weight-decay", 0.1], "mesh": ["--mesh", "data=1"],
           "microbatches": ["--microbatches", 2], "gemm": ["--gemm", "cblas"],
           "compress-stats": ["--compress-stats", 10], "on-nan": ["--on-nan", "skip"],
           "checkpoint-every": ["--checkpoint-every", 10], "resume": ["--resume", "auto"],
           "bound": ["--bound"], "forecast": ["--forecast"],
           "ceilings": ["--ceilings", "some.json"]}


class Naive(gwrun.Shared):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.fast = gwrun.train(2, cls.path("fast"), *SMALL)

    def train(self, name, *words, **more):
        return gwrun.train(2, self.path(name), *SMALL, *words, **more)

    def check_near(self, name, run):
        """It is the fast backend's run, up to rounding."""
        for one, other in zip(gwrun.losses(self.path(name)), gwrun.losses(self.path("fast"))):
            self.assertAlmostEqual(one, other, delta=1e-5 * other)
        for key in ("train_loss", "test_loss"):
            value = self.fast["results"][key]
            self.assertAlmostEqual(run["results"][key], value, delta=1e-5 * value)
        self.assertEqual(run["results"]["checks"]["replicas"], 2)

    def check_ledger(self, name, bytes_of_rank, phases=("backward", "mpi_wait")):
        """Phases add up, and what is exchanged are doubles: an allreduce is 2(P-1)/P of them, a reduce
        and a broadcast half of that each."""
        identities.leaves(self, self.path(name), False)
        for row in gwrun.batches(self.path(name)):
            for phase in phases:
                self.assertGreater(float(row[f"{phase}_s"]), 0, phase)
            self.assertEqual(int(row["wire_bytes"]), bytes_of_rank)
            self.assertEqual(int(row["logical_bytes"]), 8 * PARAMETERS)

    def test_allreduce(self):
        run = self.train("naive", *NAIVE, "--inject-skew", "1:2ms", "--collectives")
        backend = dict(run["backend"])
        self.assertGreater(backend.pop("critical_held_s"), 0)
        self.assertGreaterEqual(backend.pop("critical_wait_s"), 0)
        self.assertEqual(backend, {"name": "naive", "precision": "float64", "loops": "sample",
                                   "sum": "critical", "schedule": "static", "exchange": "allreduce",
                                   "parameters_bytes": 8 * PARAMETERS})
        self.check_near("naive", run)
        shown = gwrun.script(os.path.join(gwrun.SOURCE, "analysis/show"), self.path("naive"))
        self.assertIn("--backend naive", shown.stdout)
        self.check_ledger("naive", 8 * PARAMETERS, ("data", "forward", "backward", "update", "mpi_wait"))
        self.assertIn("modelled", run["sources"]["wire_bytes"])
        self.assertEqual([run[key] for key in ("gemm", "work", "ceilings")], [None] * 3)
        waited = [float(row["wait_skew_s"]) for row in gwrun.batches(self.path("naive"))
                  if row["rank"] == "0"]
        self.assertGreater(sum(waited), 24 * 1e-3)  # for rank 1
        self.assertEqual(len(gwrun.read(self.path("naive/collectives.csv")).splitlines(True)), 1 + 2 * 48)

    def test_root(self):
        """One rank updates; overhead is measured before the run, which nobody notices."""
        run = self.train("root", *ROOT, "--threads", 2, overhead=5)
        self.assertEqual(run["backend"], {"name": "naive", "precision": "float64", "loops": "blocked",
                                          "sum": "reduction", "schedule": "dynamic",
                                          "exchange": "root", "parameters_bytes": 8 * PARAMETERS})
        self.check_near("root", run)
        self.check_ledger("root", 8 * PARAMETERS)
        self.assertEqual(run["comm"]["strategy"], "ps")
        for row in gwrun.batches(self.path("root")):
            self.assertEqual(float(row["update_s"]) > 0, row["rank"] == "0")

    def test_fast(self):
        self.assertEqual(self.fast["backend"], {"name": "fast", "precision": "float32",
                                                "parameters_bytes": 4 * PARAMETERS})

    def test_model(self):
        """What is evaluated within an epoch, and saved, is the model after that step."""
        self.train("tested", *NAIVE, "--eval-every", 7, "--verify-every", 5)
        end = self.train("end", *NAIVE, "--steps", 7)["results"]
        first = gwrun.rows(self.path("tested/evaluations.csv"))[0]
        for key in ("test_loss", "test_accuracy"):
            self.assertAlmostEqual(float(first[key]), end[key], places=6)
        done = gwrun.ok(1, "eval", "--model", self.path("end/model.gw"), *SMALL[:2])
        self.assertIn(f"{end['test_accuracy']:.4f}", done.stdout)

    def test_diverged(self):
        for layers, what in (("64,64,64", "parameters are"), ("64,64,64,64,64", "the loss is")):
            done = gwrun.run(2, "train", *SMALL, *NAIVE, "--lr", "1e6", "--layers", layers)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn(f"{what} no longer finite", done.stderr)
            self.assertNotIn("--on-nan", done.stderr)  # which cannot skip here

    def refused(self, ranks, *words):
        return gwrun.refusal(gwrun.run(ranks, "train", *SMALL, "--out", self.path("refused"), *words))

    def test_refused(self):
        for option, words in REFUSED.items():
            with self.subTest(option=option):
                said = self.refused(1, *NAIVE, *words)
                self.assertRegex(said, re.escape(f"--backend naive excludes --{option}"))
        self.assertIn("did you mean 'naive'", self.refused(2, "--backend", "naiv"))
        self.assertIn("fast: unknown option 'loops'", self.refused(1, "--backend", "fast:loops=blas"))
        self.assertIn("sample|batch|blocked|simd|blas", self.refused(1, "--backend", "naive:loops=best"))
        self.assertIn("unknown backend './x.so'", self.refused(1, "--backend", "./x.so"))
