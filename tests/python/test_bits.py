"""The bits of a run follow from its command: not from a link, a cache, load or what polls between products."""

import os
import subprocess
import sys
import unittest

import faultcase
import gwrun

BOTH = gwrun.cached("GW_GEMM") == "auto"
# Products of 4.3 GFLOP, which are cut.
DATA = ("--data", "synthetic:samples=5000,features=1024,classes=4", "--layers", 1024, "--batch", 4096, "--steps", 2)
QUICK = ("--ceilings", "off", "--overhead", 0, "--profile", "timers")
COMMS = (("--comm", "allreduce:algo=sra"), ("--comm", "iallreduce:algo=sra"),
         ("--comm", "iallreduce:algo=sra", "--update", "lazy"))


class Bits(gwrun.Case):
    def losses(self, name, *words, env=()):
        """Of all steps and ranks, as batches.csv has them."""
        out = self.path(name)
        cache = self.path(f"cache-{name}")
        gwrun.ok(2, "train", *DATA, *QUICK, *words, "--out", out,
                 env={**os.environ, "XDG_CACHE_HOME": cache, **dict(env)})
        return [(row["rank"], row["step"], row["loss"]) for row in gwrun.rows(out, "batches.csv")]

    def test_one_curve(self):
        curves = {}
        for c, comm in enumerate(COMMS):
            curves[comm] = self.losses(f"c{c}", *comm)
        for rate in (100_000_000, 500_000_000, 10_000_000_000):
            link = {"GRADWIRE_TESTBED": "2", "GRADWIRE_LINK_RATE": str(rate)}
            curves[rate] = self.losses(f"r{rate}", *COMMS[1], env=link)
        load = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        try:
            curves["load"] = self.losses("load", *COMMS[1])
        finally:
            load.kill()
            load.wait()
        first = curves[COMMS[0]]
        self.assertEqual(len({loss for _, _, loss in first}), len(first))
        for name, curve in curves.items():
            with self.subTest(name=name):
                self.assertEqual(curve, first)

    @unittest.skipUnless(BOTH, "one library: there is nothing to choose")
    def test_library_is_named(self):
        for name, library in (("dnnl", "oneDNN"), ("cblas", "")):
            with self.subTest(name=name):
                out = self.path(name)
                gwrun.ok(1, "train", "--data", "synthetic:samples=400,features=9,classes=4", "--layers", 7, "--epochs", 1,
                         *QUICK, "--gemm", name, "--out", out)
                gemm = gwrun.run_json(out)["machine"]["gemm"]
                self.assertIn(library, gemm)
                self.assertNotIn(" + ", gemm)

    @unittest.skipUnless(BOTH, "one library: there is nothing to choose")
    def test_evaluation(self):
        """What computes it, a product that fails tells."""
        data = ("--data", "synthetic:samples=400,features=9,classes=4")
        model, env = self.path("run"), faultcase.product(self.dir, "fail", 1)
        gwrun.ok(1, "train", *data, "--layers", 7, "--epochs", 1, *QUICK, "--out", model)
        for library, status in (("cblas", 0), ("dnnl", 1)):
            done = gwrun.run(1, "eval", "--model", model, *data, "--gemm", library, env=env)
            self.assertEqual(done.returncode, status, done.stderr)

    @unittest.skipIf(BOTH, "both libraries are linked")
    def test_missing(self):
        other = "cblas" if gwrun.cached("GW_GEMM") == "dnnl" else "dnnl"
        for words in (("train", *DATA), ("eval", "--model", self.dir)):
            gwrun.refusal(gwrun.run(2, *words, "--gemm", other), f"--gemm {other}")
