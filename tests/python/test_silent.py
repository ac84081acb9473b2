"""Silent faults: replicas that differ, and numbers that are not finite. They are found, named, and end
the run on every number of ranks, or only the step if that was asked for."""

import os
import re
import shutil
import unittest

import faultcase
import gwrun

QUICK = ("--ceilings", "off", "--overhead", 0, "--profile", "timers")
DATA = ("--data", "synthetic:samples=1200,features=9,classes=4", "--layers", "7", "--batch", 20,
        "--epochs", 1)  # 50 steps
FLIP = os.path.join(os.environ["BUILD"], "tests", "libplugin_flip.so")
OVERFLOW = ("--data", "synthetic:samples=1200,features=16,classes=4", "--layers", "32,32,32",
            "--batch", 24, "--lr", "1e6", "--momentum", "0.9")


def broken(folder, rank, fault="nan"):
    """The environment in which step 5's gradient of layer 0 has one float that is not a number: a step has
    five products, the fifth of them that gradient."""
    return faultcase.product(folder, fault, 4 * 5 + 5, rank)


class Case(gwrun.Case):
    def fails(self, ranks, status, *words, **more):
        """The one line on stderr."""
        return gwrun.failure(gwrun.run(ranks, "train", "--quiet", *words, **more), status)

    def facts(self, out):
        return gwrun.run_json(out)["results"]


class Replicas(Case):
    def test_flip(self):
        """A bit flips after step 5 and is seen at the next comparison of replicas."""
        comm = f"{FLIP}:step=5,rank=1,layer=1"
        for ranks, more, step, who in ((2, ["--verify-every", 4], 8, "ranks 0, 1 have no majority"),
                                       (3, ["--verify-every", 1], 5, "rank 1 from all others"),
                                       (3, [], 50, "rank 1 from all others")):
            with self.subTest(ranks=ranks, more=more):
                line = self.fails(ranks, 1, *DATA, "--comm", comm, *more)
                self.assertIn(f"step {step}: replicas differ: {who}, first in layer 1 (", line)
                crcs = re.findall(r"([0-9a-f]{8}) on rank (\d)", line)
                self.assertEqual([rank for _, rank in crcs], ["1", "0"])
                self.assertNotEqual(crcs[0][0], crcs[1][0])

    def test_one_rank(self):
        """Alone there is nobody to differ from."""
        out = self.path("run")
        gwrun.train(1, out, *DATA, *QUICK, "--comm", f"{FLIP}:step=5")
        self.assertEqual(self.facts(out)["checks"]["replicas"], 1)

    def test_times(self):
        """Every 7th step is compared; with local SGD, the next step at which replicas are averaged.
        Training stays the same."""
        for comm, times in (("iallreduce", 50 // 7), ("local:period=5", 5)):
            with self.subTest(comm=comm):
                words = (*DATA, *QUICK, "--comm", comm, "--update", "lazy")
                plain, often = (self.path(comm + k) for k in "ab")
                gwrun.train(2, plain, *words)
                gwrun.train(2, often, *words, "--verify-every", 7)
                self.assertEqual(self.facts(plain)["checks"]["replicas"], 1)
                self.assertEqual(self.facts(often)["checks"]["replicas"], times + 1)
                self.assertEqual(*(self.facts(k)["replica_hash"] for k in (plain, often)))

    def test_refused(self):
        line = self.fails(2, 2, *DATA, "--comm", "gossip", "--verify-every", 5)
        self.assertIn("--verify-every", line)
        self.assertIn("gossip", line)


class NotFinite(Case):
    def test_loss_stops(self):
        for ranks, more in ((1, []), (3, ["--comm", "local"]),
                            (2, ["--comm", "iallreduce", "--update", "lazy"])):
            with self.subTest(ranks=ranks, more=more):
                out = self.path(f"{ranks}{len(more)}")
                line = self.fails(ranks, 1, *OVERFLOW, *QUICK, "--out", out, *more)
                self.assertRegex(line, r"step \d+, rank 0: the loss is no longer finite")
                self.assertFalse(os.path.exists(out))

    def test_skip(self):
        """Leaving steps out does not repair what was lost, but they are left out and counted."""
        out = self.path("run")
        done = gwrun.ok(2, "train", *OVERFLOW, *QUICK, "--epochs", 1, "--on-nan", "skip", "--out",
                        out)
        facts = self.facts(out)
        nan = facts["checks"]["nan"]
        self.assertEqual(nan["on_nan"], "skip")
        self.assertGreater(nan["left_out"], 0)
        self.assertEqual(nan["by_rank"], [nan["left_out"]] * 2)
        self.assertEqual((nan["first"]["rank"], nan["first"]["layer"]), (0, None))
        self.assertIn(f"left out {nan['left_out']} step", done.stdout)
        self.assertIsNotNone(facts["train_loss"])

    def test_nothing_left(self):
        line = self.fails(2, 1, *OVERFLOW, "--epochs", 3, "--on-nan", "skip")
        self.assertIn("epoch 2", line)
        self.assertIn("no longer finite", line)

    def test_refused(self):
        line = self.fails(2, 2, *DATA, "--on-nan", "skp")
        self.assertIn("skip", line)

    @unittest.skipUnless(gwrun.cached("GW_GEMM") != "cblas", "another library computes the products")
    def test_gradient(self):
        """One float of one gradient on one rank: the line names it. A run that leaves that step out
        continues with equal replicas and loses no other step."""
        for ranks, rank, more in ((1, 0, []), (3, 2, ["--compress", "qsgd"]),
                                  (2, 1, ["--comm", "sharded", "--update", "lazy"]),
                                  (3, 1, ["--comm", "iallreduce", "--clip-norm", 1]),
                                  (2, 0, ["--comm", "iallreduce:progress=thread,algo=sra", "--update",
                                          "lazy", "--compress", "topk"])):
            with self.subTest(ranks=ranks, more=more):
                out = self.path(f"{ranks}{len(more)}")
                words = (*DATA, *QUICK, *more)
                env = broken(self.dir, rank)
                line = self.fails(ranks, 1, *words, env=env)
                self.assertIn(f"step 5, rank {rank}, layer 0: the gradient is no longer finite "
                              "(nan at float 0 of the layer, 1 such in all)", line)
                gwrun.ok(ranks, "train", *words, "--on-nan", "skip", "--out", out, env=env)
                nan = self.facts(out)["checks"]["nan"]
                self.assertEqual(nan["left_out"], 1)
                self.assertEqual(nan["by_rank"], [int(r == rank) for r in range(ranks)])
                self.assertEqual(nan["first"], {"step": 5, "rank": rank, "layer": 0,
                                                "what": "gradient"})
                self.assertTrue(all(row["train_loss"] for row in gwrun.rows(out, "epochs.csv")))
                clip = gwrun.run_json(out)["comm"]["clip"]
                self.assertEqual(clip and clip["updates"], 49 if "--clip-norm" in more else None)

    @unittest.skipUnless(gwrun.cached("GW_GEMM") != "cblas", "another library computes the products")
    def test_checkpoint(self):
        """No checkpoint is taken after the fault: the run ends at the step of the fault, although one
        is due."""
        out = self.path("run")
        line = self.fails(2, 1, *DATA, *QUICK, "--checkpoint-every", 5, "--out", out,
                          env=broken(self.dir, 1))
        self.assertIn("step 5, rank 1, layer 0", line)
        kept = os.path.join(out, "model.ckpt.d")
        self.assertEqual(os.listdir(kept) if os.path.isdir(kept) else [], [])

    @unittest.skipUnless(gwrun.cached("GW_GEMM") != "cblas", "another library computes the products")
    def test_resumed(self):
        """Checks and left-out steps from before a resume count, and the first fault is still named,
        even if the rank that found it no longer exists."""
        whole, out = (self.path(name) for name in ("whole", "out"))
        words = (*DATA, *QUICK, "--comm", "allreduce", "--wire-check", "on", "--verify-every", 7,
                 "--on-nan", "skip", "--checkpoint-every", 30)
        env = broken(self.dir, 1)
        for folder, more in ((whole, []), (out, ["--steps", 30])):
            gwrun.ok(2, "train", *words, *more, "--out", folder, env=env)
        alone = self.path("alone")
        shutil.copytree(out, alone)
        first = {"step": 5, "rank": 1, "layer": 0, "what": "gradient"}
        for ranks, folder, by_rank in ((2, out, [0, 1]), (1, alone, [0])):
            with self.subTest(ranks=ranks):
                done = gwrun.ok(ranks, "train", *words, "--out", folder, "--resume", "auto")
                self.assertIn("left out 1 step of 50; the first: step 5, rank 1, layer 0",
                              done.stdout)
                nan = self.facts(folder)["checks"]["nan"]
                self.assertEqual((nan["left_out"], nan["by_rank"], nan["first"]),
                                 (1, by_rank, first))
                checks = self.facts(folder)["checks"]
                self.assertIn(f"checks: replicas compared {checks['replicas']} times, "
                              f"{checks['wire']['frames']} frames whole; 1 step LEFT OUT, the first: "
                              "step 5, rank 1, layer 0\n", gwrun.run(1, "show", folder).stdout)
        checks = [self.facts(folder)["checks"] for folder in (whole, out)]
        self.assertEqual(checks[0]["wire"], checks[1]["wire"])
        self.assertGreater(checks[0]["wire"]["frames"], 0)
        self.assertEqual(checks[0]["replicas"], checks[1]["replicas"])

    def test_overflow_on_the_way(self):
        """Finite gradients that half precision cannot hold are found before they are sent."""
        out = self.path("run")
        words = (*OVERFLOW, *QUICK, "--epochs", 1, "--compress", "fp16", "--out", out)
        line = self.fails(2, 1, *words)
        self.assertIn("the gradient is larger than exchange and update carry", line)
        gwrun.ok(2, "train", *words, "--on-nan", "skip")
        self.assertGreater(self.facts(out)["checks"]["nan"]["left_out"], 0)

    @unittest.skipUnless(gwrun.cached("GW_GEMM") != "cblas", "another library computes the products")
    def test_squares(self):
        """A finite gradient whose square is infinite would hold its parameter for ever: one rank without an
        exchange finds it, too, where the optimizer keeps squares."""
        env = broken(self.dir, 0, "huge")
        line = self.fails(1, 1, *DATA, *QUICK, "--optimizer", "adamw", env=env)
        self.assertIn("step 5, rank 0, layer 0: the gradient is larger than exchange and update carry (1e+20 at "
                      "float 0 of the layer, 1 such in all)", line)
        gwrun.ok(1, "train", *DATA, *QUICK, "--optimizer", "lion", env=env)

    def test_overflow_of_an_average(self):
        """Parameters move farther than half precision can tell: damaged ones do not replace good ones."""
        out = self.path("run")
        words = (*OVERFLOW, *QUICK, "--epochs", 1, "--comm", "local:period=1", "--compress", "fp16", "--on-nan",
                 "skip", "--out", out, "--checkpoint-keep", 1, "--checkpoint-every", 20)
        gwrun.ok(2, "train", *words, "--steps", 1, "--lr", 0.1)
        line = self.fails(2, 1, *words, "--resume", "auto")
        self.assertIn("parameters are no longer finite", line)
        self.assertEqual(os.listdir(os.path.join(out, "model.ckpt.d")), ["step-000000000001"])
