"""Ranks that are not alike: drawn delays are the same in every run of a seed."""

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
                                   ("--comm", "iallreduce", "--update", "lazy", "--paired"),
                                   ("--mesh", "pipe=2", "--microbatches", 2), ("--backend", "naive"),
                                   ("--pace", 1))):
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

    def test_refusals(self):
        for ranks in (1, 2):
            for law, says in (("all:pareto:alpha=1", ["infinite", "cap"]), ("0:pareto:alpha=0", ["alpha=0"]),
                              ("0:pareto:scale=0", ["scale=0"]), ("7:exp", ["rank 7"]), ("0:gauss", ["laws are"])):
                self.refused(ranks, "--inject-skew", law, says=says)
