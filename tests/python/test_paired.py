"""train --paired: what overlap saves, measured from the same states in one run."""

import itertools
import os
import statistics
import unittest

import gwrun
import test_testbed

SMALL = ("--data", "synthetic:samples=4000,features=64,classes=5", "--layers", "32,32")
STEPS = 40

# Exchanges that overlap; whether the two variants must end with the same bits on two ranks. With
# one bucket for the whole arena a codec sees the same values in both, so that equal bits show that
# both begin with the same residual.
OVERLAPPED = [
    (("--comm", "iallreduce:bucket=4K", "--momentum", "0.9"), True),
    (("--comm", "iallreduce:bucket=4K,algo=ring", "--compress", "zlib"), True),
    (("--comm", "iallreduce:bucket=1G", "--compress", "topk:ratio=0.1"), True),
    (("--comm", "iallreduce:bucket=1G,algo=sra", "--compress", "qsgd:bits=4", "--momentum", "0.9",
      "--error-feedback", "on"), True),
    (("--comm", "iallreduce:bucket=4K,progress=thread", "--compress", "onebit"), False),
    (("--comm", "sparse", "--compress", "topk:ratio=0.1", "--momentum", "0.9", "--error-feedback",
      "dgc"), False),
]

# Every strategy that overlaps, with who may move its messages on. Twins of the strategies that
# only sum gradients form their sums in another order, which three ranks may notice.
STRATEGIES = [
    ("iallreduce:bucket=4K,algo=sra", ("poll", "thread"), False),
    ("iallreduce:bucket=4K,algo=ring,order=priority,credit=8K", ("poll", "thread"), False),
    ("sharded", ("poll", "thread"), True),
    ("delayed:bucket=4K", ("poll",), True),
]

# What has no twin, and a word of the reason.
REFUSED = [
    (("--comm", "allreduce"), "blocks"),
    (("--comm", "allreduce", "--update", "lazy"), "blocks"),
    (("--comm", "local"), "same updates"),
    (("--comm", "gossip"), "same updates"),
    (("--comm", "powersgd"), "blocks"),
    (("--comm", "ps"), "blocks"),
    (("--comm", "iallreduce", "--profile", "off"), "--profile timers"),
    (("--comm", "iallreduce", "--compress", "auto"), "--compress auto"),
]


def pairs(out):
    return gwrun.rows(out, "paired.csv")


class Paired(gwrun.Case):

    def train(self, name, *words, ranks=2):
        out = self.path(name)
        return gwrun.train(ranks, out, *SMALL, "--steps", STEPS, "--epochs", 1, "--overhead", 0,
                           "--overwrite", *words), out

    def test_goes_on_from_the_overlapped_step(self):
        """The second step of each pair leaves no trace: training equals that of a run without pairs."""
        for words, equal in OVERLAPPED:
            with self.subTest(words=words):
                alone, out = self.train("alone", *words)
                losses = gwrun.losses(out)
                self.assertIsNone(alone["results"]["paired"])
                both, out = self.train("both", "--paired", *words)
                self.assertEqual(both["results"]["replica_hash"],
                                 alone["results"]["replica_hash"])
                self.assertEqual(both["results"]["wire_bytes"], alone["results"]["wire_bytes"])
                self.assertEqual(both["results"]["traffic"], alone["results"]["traffic"])
                self.assertEqual(gwrun.losses(out), losses)
                paired = both["results"]["paired"]
                if equal:
                    self.assertEqual(paired["equal_steps"], STEPS)
                    self.assertEqual(paired["largest_difference"], 0)
                else:  # buckets of their own round in their own way
                    self.assertLess(paired["equal_steps"], STEPS)
                    self.assertGreater(paired["largest_difference"], 0)

    def test_long_products(self):
        """Overlapped steps compute them in pieces, which may round differently."""
        both, _ = self.train("long", "--paired", "--comm", "iallreduce", "--layers", "1024,1024",
                             "--data", "synthetic:samples=4096,features=784", "--batch", 2048,
                             "--steps", 2, "--save-model", "off")
        self.assertLess(both["results"]["paired"]["largest_difference"], 1e-5)

    def test_every_strategy(self):
        """For overlap within a step and beyond it, the twin makes the same updates without overlap, and
        the run equals one without pairs."""
        for comm, modes, same in STRATEGIES:
            for mode, update, ranks in itertools.product(modes, ("eager", "lazy"), (2, 3)):
                if ranks == 3 and (mode, update) != ("poll", "lazy"):
                    continue  # many threads on few cores: slow, and nothing new
                words = ("--comm", f"{comm}{',' if ':' in comm else ':'}progress={mode}",
                         "--update", update, "--momentum", "0.9", "--steps", 20)
                with self.subTest(words=words, ranks=ranks):
                    both, out = self.train("both", "--paired", *words, ranks=ranks)
                    if ranks == 2 and update == "lazy":
                        alone, _ = self.train("alone", *words)
                        self.assertEqual(both["results"]["replica_hash"],
                                         alone["results"]["replica_hash"])
                    self.check_pairs(both["results"]["paired"], pairs(out),
                                     update == "lazy" or "delayed" in comm, same or ranks == 2)

    def test_votes(self):
        """The ranks may vote while a step runs. The vote is not counted as an exchange that the step
        hides."""
        both, out = self.train("votes", "--paired", "--comm", "iallreduce:bucket=64K", "--update",
                               "lazy", "--steps", 30, "--inject-skew", "1:30ms")
        self.check_pairs(both["results"]["paired"], pairs(out), True, True)
        self.assertIn("overlapped", {row["first"] for row in pairs(out)})

    def check_pairs(self, result, rows, blocks, equal):
        self.assertEqual(result["steps_a_pair"], 4 if blocks else 1)
        self.assertLessEqual({int(row["steps"]) for row in rows},
                             {1, 2, 3, 4} if blocks else {1})
        self.assertGreaterEqual(len(rows), 2 if blocks else 20)
        self.assertEqual({float(row["blocking_inflight_s"]) for row in rows}, {0})
        self.assertGreater(max(float(row["inflight_s"]) for row in rows), 0)
        if equal:
            self.assertEqual({row["equal"] for row in rows}, {"1"})
        self.assertLess(result["largest_difference"], 1e-5)
        for row in rows:
            f = {key: float(text) for key, text in row.items() if key.endswith("_s")}
            self.assertAlmostEqual(f["saved_s"], f["blocking_wall_s"] - f["overlapped_wall_s"],
                                   delta=1e-8 * (f["blocking_wall_s"] + f["overlapped_wall_s"]))

    def test_residuals_across_steps(self):
        """Lossy codecs with error feedback: both variants begin each block with the same residual,
        and the same encodings leave the same one."""
        for comm in ("sharded", "delayed:bucket=4K"):
            with self.subTest(comm=comm):
                run, _ = self.train("run", "--paired", "--comm", comm, "--update", "lazy",
                                    "--compress", "topk:ratio=0.1")
                paired = run["results"]["paired"]
                self.assertEqual(paired["largest_difference"], 0, paired)

    def test_slow_steps_still_make_blocks(self):
        """With a vote after each step, blocks are still complete."""
        run, out = self.train("slow", "--paired", "--comm", "delayed", "--inject-skew", "1:120ms",
                              "--steps", 12)
        self.assertGreaterEqual(len(pairs(out)), 2)
        self.assertIn("4", {row["steps"] for row in pairs(out)})
        self.assertEqual(run["results"]["steps"], 12)

    def test_rows_and_results(self):
        run, out = self.train("run", "--comm", "iallreduce:bucket=4K", "--paired")
        rows = pairs(out)
        self.assertEqual([int(row["step"]) for row in rows], list(range(1, STEPS + 1)))
        self.assertEqual({row["first"] for row in rows}, {"blocking", "overlapped"})
        walls = {}
        for row in gwrun.batches(out):
            step = int(row["step"])
            walls[step] = max(walls.get(step, 0), float(row["wall_s"]))
        for row in rows:
            f = {key: float(text) for key, text in row.items() if key.endswith("_s")}
            near = 1e-8 * (f["blocking_wall_s"] + f["overlapped_wall_s"])
            self.assertAlmostEqual(f["overlapped_wall_s"], walls[int(row["step"])], delta=near)
            self.assertAlmostEqual(f["saved_s"], f["blocking_wall_s"] - f["overlapped_wall_s"],
                                   delta=near)
            self.assertAlmostEqual(f["interference_s"],
                                   f["overlapped_compute_s"] - f["blocking_compute_s"], delta=near)
            self.assertLess(f["overlapped_compute_s"] + f["overlapped_exposed_s"],
                            f["overlapped_wall_s"])
            self.assertLess(f["blocking_compute_s"] + f["blocking_exposed_s"],
                            f["blocking_wall_s"])
        result = run["results"]["paired"]
        self.assertEqual(result["pairs"], STEPS - 10)  # the first ten warm up
        for name in ("saved", "interference", "inflight"):
            kept = [float(row[f"{name}_s"]) for row in rows[10:]]
            self.assertAlmostEqual(result[f"{name}_s"], statistics.median(kept), delta=1e-8)
            self.assertTrue(result[f"{name}_ci_low_s"] <= result[f"{name}_s"] <= result[f"{name}_ci_high_s"], result)
        self.assertGreater(result["inflight_s"], 0)
        # an order is drawn from the seed: another run takes the same
        _, again = self.train("again", "--comm", "iallreduce:bucket=4K", "--paired")
        self.assertEqual([row["first"] for row in pairs(again)], [row["first"] for row in rows])

    def test_end_line(self):
        done = gwrun.ok(2, "train", *SMALL, "--steps", 30, "--comm", "iallreduce", "--paired")
        self.assertRegex(done.stdout, r"paired: overlap saves -?[\d.]+ us \(95%: -?[\d.]+ to ")

    def test_refused(self):
        for words, why in REFUSED:
            with self.subTest(words=words):
                gwrun.refusal(gwrun.run(2, "train", *SMALL, "--paired", *words), "--paired", why)


@unittest.skipUnless(test_testbed.LAUNCHER, "needs a testbed")
class OnALink(test_testbed.Testbed):
    """Layers whose exchange on a slow link takes about as long as the computation that follows. What
    that saves depends on the machine: `gradwire bench overlap` and the studies measure it."""

    def test_over_a_link(self):
        self.name = f"paired{os.getpid()}"  # test_testbed counts those of its own names
        self.must("up", "--hosts", "2", "--rate", "200mbit")
        self.addCleanup(self.must, "down")
        self.must("run", *test_testbed.MPIEXEC, "-n", "2", "--", gwrun.GRADWIRE, "train", "--quiet", "--paired",
                  "--comm", "iallreduce:bucket=256K", "--data", "synthetic:samples=20000,features=256",
                  "--layers", "256,256,256,256,256", "--batch", 512, "--steps", 30,
                  "--overhead", 0, "--overwrite", "--out", self.out)
        paired = gwrun.run_json(self.out)["results"]["paired"]
        self.assertTrue(paired["saved_ci_low_s"] <= paired["saved_s"] <= paired["saved_ci_high_s"], paired)
        self.assertGreater(paired["inflight_s"], 0)
        self.assertEqual(paired["equal_steps"], 30)
