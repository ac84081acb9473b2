"""Which library computes which product: chosen once a machine, the same in a resumed run."""

import glob
import os
import unittest

import faultcase
import gwrun

BOTH = gwrun.cached("GW_GEMM") == "auto"
# Its longest product is 4 million operations: worth timing, and done in some 0.1 ms.
DATA = ("--data", "synthetic:samples=400,features=128,classes=4", "--layers", "128,128", "--batch",
        128, "--epochs", 2)
QUICK = ("--ceilings", "off", "--overhead", 0, "--profile", "timers")


class Products(gwrun.Case):
    def setUp(self):
        super().setUp()
        self.cache = self.path("cache")

    def train(self, name, *words, ranks=2, cache=None):
        """run.json's object on products."""
        out = self.path(name)
        env = {**os.environ, "XDG_CACHE_HOME": cache or self.cache}
        gwrun.ok(ranks, "train", *DATA, *QUICK, "--comm", "iallreduce", *words, "--out",
                 out, env=env)
        run = gwrun.run_json(out)
        self.assertEqual(run["machine"]["gemm"], run["gemm"]["libraries"])
        return run["gemm"]

    def kept(self):
        """The cache's one file."""
        files = glob.glob(os.path.join(self.cache, "gradwire", "products-*.json"))
        self.assertEqual(len(files), 1)
        return files[0]

    def turn_round(self):
        """Swap slow and fast in the cache."""
        kept = gwrun.read_json(self.kept())
        kept["seconds"] = {name: 1e-9 / s for name, s in kept["seconds"].items()}
        gwrun.write(self.kept(), kept)

    def test_cached(self):
        first = self.train("first")
        self.assertEqual(first["source"], "measured")
        self.assertIsNone(first["note"])
        self.assertEqual(len(first["products"]), 6)
        second = self.train("second")
        self.assertEqual(second["source"], "cached")
        self.assertEqual(second["products"], first["products"])
        self.assertEqual(second["piece"], first["piece"])
        piece = first["piece"]
        self.assertGreater(piece["drain_s"], 0)
        self.assertAlmostEqual(piece["drain_s"], piece["buffer_bytes"] * 8
                               / piece["rate_bits_per_s"])
        gwrun.write(self.kept(), '{"gradwire_products": 1, "seconds": {"nn')
        self.assertEqual(self.train("third")["source"], "measured")
        self.assertEqual(self.train("fourth")["source"], "cached")

    def test_no_cache(self):
        gemm = self.train("run", cache="/proc/none")
        self.assertEqual(gemm["source"], "measured")
        self.assertIn("for this run alone: cannot make /proc/none", gemm["note"])

    def test_small_nets_are_not_timed(self):
        gemm = self.train("run", "--layers", "7", "--batch", 8)
        self.assertEqual(gemm["source"], "untimed")
        self.assertIsNone(gemm["piece"])
        self.assertFalse(os.path.exists(self.cache))

    @unittest.skipUnless(BOTH, "one library: there is nothing to choose")
    def test_resumed(self):
        """A resumed run computes as before, whatever it would choose now."""
        stopped = self.train("stopped", "--checkpoint-every", 3, "--steps", 3)
        self.turn_round()
        other = self.train("other")
        self.assertNotEqual([p["whole"] for p in other["products"]],
                            [p["whole"] for p in stopped["products"]])
        gone_on = self.train("stopped", "--resume", "auto")
        self.assertEqual(gone_on["source"], "resumed")
        self.assertEqual([p["whole"] for p in gone_on["products"]],
                         [p["whole"] for p in stopped["products"]])
        self.assertEqual(gone_on["piece"], stopped["piece"])

    @unittest.skipUnless(BOTH, "one library: there is nothing to choose")
    def test_named(self):
        for name, library in (("dnnl", "oneDNN"), ("cblas", "")):
            with self.subTest(name=name):
                gemm = self.train(name, "--gemm", name, ranks=1)
                self.assertEqual({p["whole"] for p in gemm["products"]}, {name})
                self.assertIn(library, gemm["libraries"])
                self.assertNotIn(" + ", gemm["libraries"])

    @unittest.skipUnless(BOTH, "one library: there is nothing to choose")
    def test_evaluation(self):
        """What computes it, a product that fails tells."""
        self.train("run")
        model, env = self.path("run"), faultcase.product(self.dir, "fail", 1)
        for library, status in (("cblas", 0), ("dnnl", 1)):
            done = gwrun.run(1, "eval", "--model", model, *DATA[:2], "--gemm", library, env=env)
            self.assertEqual(done.returncode, status, done.stderr)

    @unittest.skipIf(BOTH, "both libraries are linked")
    def test_missing(self):
        other = "cblas" if gwrun.cached("GW_GEMM") == "dnnl" else "dnnl"
        for words in (("train", *DATA), ("eval", "--model", self.dir)):
            gwrun.refusal(gwrun.run(2, *words, "--gemm", other), f"--gemm {other}")
