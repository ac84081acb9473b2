"""Ranks that are not alike: drawn delays are the same in every run of a seed, and a divided training set is
trained on as a whole, each sample once an epoch."""

import gwrun

SMALL = ("--data", "synthetic:samples=500,features=20,classes=4,test=0.2", "--layers", "12", "--batch", 40, "--epochs", 2,
         "--profile", "timers", "--overwrite", "--save-model", "on")
DRAWN = ("--inject-skew", "all:pareto:alpha=2,scale=100us,cap=2ms")


def delays(out):
    return [(row["rank"], row["step"], row["injected_s"]) for row in gwrun.batches(out)]


class Uneven(gwrun.Case):

    def train(self, ranks, name, *words):
        return gwrun.train(ranks, self.path(name), *SMALL, *words)

    def refused(self, ranks, *words, says):
        gwrun.refusal(gwrun.run(ranks, "train", "--check", *SMALL, *words), *says)

    # ---- delays ----

    def test_draws_are_those_of_the_seed(self):
        self.train(2, "plain", *DRAWN)
        drawn = delays(self.path("plain"))
        self.assertEqual(len({delay for _, _, delay in drawn}), len(drawn))
        for row in gwrun.batches(self.path("plain")):
            self.assertGreaterEqual(float(row["injected_s"]), 1e-4)
            self.assertGreaterEqual(float(row["data_s"]), float(row["injected_s"]) * (1 - 1e-9))
        for i, words in enumerate((("--comm", "delayed", "--compress", "qsgd"), ("--comm", "local", "--lr", 0.01),
                                   ("--comm", "iallreduce", "--update", "lazy"),
                                   ("--mesh", "pipe=2", "--microbatches", 2),
                                   ("--partition", "labels:alpha=0.1"))):
            with self.subTest(words=words):
                self.train(2, f"other{i}", *DRAWN, *words)
                self.assertEqual(delays(self.path(f"other{i}")), drawn)
        self.train(2, "seed", *DRAWN, "--seed", 2)
        self.assertNotEqual(delays(self.path("seed")), drawn)
        self.train(3, "one", "--inject-skew", "1" + DRAWN[1][3:])
        self.assertEqual([d for _, _, d in delays(self.path("one")) if d != "0"],
                         [d for rank, _, d in drawn if rank == "1"])

    def test_draws_go_on(self):
        keep = ("--checkpoint-every", 1000, *DRAWN)
        self.train(2, "whole", *keep)
        self.train(2, "run", *keep, "--steps", 13)
        words = [word for word in SMALL if word != "--overwrite"]
        gwrun.train(2, self.path("run"), *words, *keep, "--resume", "auto")
        self.assertEqual(delays(self.path("run")), delays(self.path("whole")))

    # ---- samples ----

    def test_whole_set_at_once(self):
        """Where a batch is the whole set, it does not matter who has which sample."""
        whole = ("--batch", 320, "--epochs", 6, "--validation", 0.2)
        self.train(1, "one", *whole)
        curve = gwrun.losses(self.path("one"))
        for ranks, how, words in ((2, "sizes:3,1", ()), (3, "labels:alpha=0.1", ("--comm", "ps")),
                                  (3, "sizes:alpha=2", ("--comm", "sharded", "--compress-stats", 2)),
                                  (3, "sizes:1,5", ("--comm", "ps:dedicated=1", "--data-layout", "sharded")),
                                  (2, "sizes:1,2", ("--comm", "iallreduce", "--on-nan", "skip")),
                                  (4, "sizes:3,1", ("--mesh", "data=2,pipe=2", "--microbatches", 2))):
            with self.subTest(ranks=ranks, how=how, words=words):
                run = self.train(ranks, "some", "--partition", how, *whole, *words)
                self.assertLess(gwrun.apart(gwrun.losses(self.path("some")), curve), 1e-4)
                self.assertEqual(sum(run["data"]["partition"]["samples"]), 320)

    def test_parts(self):
        """Of each batch a rank takes its share, in an epoch what it has, wherever the images lie."""
        for how, shares in (("sizes:3,1", (30, 10)), ("labels:alpha=0.1", (20, 20))):
            with self.subTest(how=how):
                run = self.train(2, "copy", "--partition", how)
                told = run["data"]["partition"]
                for row in gwrun.batches(self.path("copy")):
                    self.assertEqual(int(row["samples"]), shares[int(row["rank"])])
                self.assertEqual(told["samples"], [10 * share for share in shares])
                self.assertAlmostEqual(told["mean_label_skew"], sum(told["label_skew"]) / 2)
                scattered = self.train(2, "scattered", "--partition", how, "--data-layout", "sharded")
                self.assertEqual(scattered["data"]["partition"], told)
                self.assertEqual(gwrun.losses(self.path("scattered")), gwrun.losses(self.path("copy")))
                shown = gwrun.ok(1, "show", self.path("copy")).stdout
                self.assertIn(f"partition: --partition {how}: {told['samples'][1]} to {told['samples'][0]} samples",
                              " ".join(shown.split()))

    def test_one_rank(self):
        """It has all samples, and says so."""
        self.train(1, "uniform")
        run = self.train(1, "divided", "--partition", "labels:alpha=0.1")
        self.assertEqual(gwrun.model(self.path("divided")), gwrun.model(self.path("uniform")))
        self.assertIsNone(run["data"]["partition"])
        self.assertIn({"option": "partition", "value": "labels:alpha=0.1", "what": "nothing is divided",
                       "why": "one rank takes all samples"}, run["comm"]["unmet"])

    def test_resume(self):
        """On as many ranks to the bit; on others a sample would change its rank."""
        words = [word for word in SMALL if word != "--overwrite"]
        keep = ("--checkpoint-every", 1000, "--partition", "sizes:alpha=3")
        self.train(2, "whole", *keep)
        self.train(2, "run", *keep, "--steps", 13)
        for ranks, other, says in ((3, (), ["among 2 ranks", "among 3"]), (1, (), ["among 2 ranks", "among 0"]),
                                   (2, ("--partition", "uniform"), ["--partition 'sizes:alpha=3'", "'uniform'"])):
            gwrun.refusal(gwrun.run(ranks, "train", *words, *keep, *other, "--out", self.path("run"), "--resume",
                                    "auto", "--ceilings", "off"), *says)
        gwrun.train(2, self.path("run"), *words, *keep, "--resume", "auto")
        self.assertEqual(gwrun.model(self.path("run")), gwrun.model(self.path("whole")))
        self.assertEqual(gwrun.losses(self.path("run")), gwrun.losses(self.path("whole")))

    def test_refusals(self):
        for ranks in (1, 2):
            for how, says in (("sizes:3,0", ["of=3,0"]), ("labels:alpha=-1", ["alpha=-1"]), ("half", ["half"]),
                              ("sizes", ["alpha"]), ("sizes:1,1,1", ["sizes of 3 ranks"])):
                self.refused(ranks, "--partition", how, says=says)
            self.refused(ranks, "--partition", "labels", "--replicate", 2, says=["excludes --replicate"])
            for law, says in (("all:pareto:alpha=1", ["infinite", "cap"]), ("0:pareto:alpha=0", ["alpha=0"]),
                              ("0:pareto:scale=0", ["scale=0"]), ("7:exp", ["rank 7"]), ("0:gauss", ["laws are"])):
                self.refused(ranks, "--inject-skew", law, says=says)
        self.refused(2, "--partition", "sizes:1,999", says=["rank 0 of 2", "none of a global batch of 40"])
        gwrun.refusal(gwrun.run(2, "train", "--check", "--data", "synthetic:samples=400", "--partition", "sizes:1,1",
                                "--local-batch", 4), "excludes --local-batch")
