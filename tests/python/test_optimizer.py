"""Optimizers that the tree does not know: two that are loaded by their path train, are checkpointed, resumed, merged
and shared out by what they say of themselves. `adam` moves elements; `lars` needs norms over whole tensors."""

import os

import gwrun
import plugincase
from plugincase import HALF

SMALL = ("--data", "synthetic:samples=600,features=20,classes=4,test=0.2", "--layers", "24,18,12", "--activation",
         "tanh", "--batch", 20, "--epochs", 2, "--ceilings", "off", "--overhead", 0)
ADAM, LARS = (os.path.join(os.environ["BUILD"], "tests", f"libplugin_{name}.so") for name in ("adam", "lars"))
# (ranks, optimizer and what else the run is told): what each keeps from step to step is in other places.
RUNS = ((1, ADAM), (1, f"{ADAM}:beta1=0.8"), (2, ADAM, "--comm", "iallreduce", "--update", "lazy"),
        (2, ADAM, "--comm", "sharded", "--update", "lazy", "--compress", "qsgd:bits=8"), (2, ADAM, "--comm", "ps"),
        (2, ADAM, "--comm", "local:period=7,momentum=1"), (2, ADAM, "--on-nan", "skip", "--comm", "delayed"),
        (2, ADAM, "--mesh", "pipe=2", "--microbatches", 2), (2, ADAM, "--mesh", "tensor=2"),
        (2, LARS), (2, LARS, "--comm", "ps", "--update", "lazy"), (2, LARS, "--mesh", "pipe=2", "--microbatches", 2))


class Optimizer(plugincase.Plugin):
    def train(self, ranks, optimizer, *words):
        """The folder of a run."""
        out = self.new()
        rate = 0.01 if "adam" in optimizer else 0.1
        gwrun.train(ranks, out, *SMALL, "--profile", "timers", "--lr", rate, "--optimizer", optimizer, *words)
        return out

    def refused(self, ranks, *words):
        return gwrun.refusal(gwrun.run(ranks, "train", *SMALL, *words))

    def test_trains(self):
        """Four classes: what learns nothing is right once in four times."""
        for optimizer in (ADAM, LARS):
            run = gwrun.run_json(self.train(2, optimizer))
            self.assertGreater(run["results"]["test_accuracy"], 0.6, optimizer)
            self.assertEqual(run["options"]["optimizer"], optimizer)

    def test_resumes_to_the_bit(self):
        for words in RUNS:
            self.check_resumes_to_the_bit(*words)

    def test_shared_out(self):
        """Which rank updates which part, and when, does not change the arithmetic: two ranks' sums have only one order."""
        whole = self.train(2, ADAM)
        for words in (("--comm", "sharded"), ("--comm", "sharded", "--update", "lazy"), ("--comm", "ps"),
                      ("--comm", "iallreduce:bucket=1K", "--update", "lazy"), ("--threads", 2)):
            with self.subTest(words=words):
                self.assertEqual(gwrun.model(self.train(2, ADAM, *words)), gwrun.model(whole))

    def test_counts_its_steps(self):
        """The correction of Adam's means depends on the number of a step, which a checkpoint without it would begin
        anew."""
        half = self.train(1, ADAM, "--steps", HALF, "--checkpoint-every", 1000)
        again = [self.train(1, ADAM, "--steps", HALF + 1, "--resume", half) for _ in range(2)]
        plain = self.train(1, ADAM, "--steps", HALF + 1)
        self.assertEqual({gwrun.model(out) for out in again}, {gwrun.model(plain)})

    def test_merged_over_meshes(self):
        """Neither stages nor the owners of parts of the vectors change the arithmetic."""
        words = ("--microbatches", 4, "--checkpoint-every", 1000)
        for optimizer in (ADAM, LARS):
            whole = self.train(1, optimizer, *words)
            out = self.train(4, optimizer, *words, "--mesh", "pipe=4", "--steps", HALF)
            out = self.train(2, optimizer, *words, "--mesh", "pipe=2", "--steps", HALF + 3, "--resume", out)
            out = self.train(1, optimizer, *words, "--resume", out, "--resume-strict")
            self.assertEqual(gwrun.model(out), gwrun.model(whole))
        words = ("--comm", "sharded", "--checkpoint-every", 1000)
        whole = self.train(2, ADAM, *words)
        out = self.train(4, ADAM, *words, "--mesh", "data=2,pipe=2", "--steps", HALF)
        out = self.train(2, ADAM, *words, "--resume", out, "--resume-strict")
        self.assertEqual(gwrun.model(out), gwrun.model(whole))

    def test_what_is_dropped_is_told(self):
        half = self.train(2, ADAM, "--steps", 4, "--checkpoint-every", 1000)
        lost = gwrun.run_json(self.train(2, "sgd:momentum=0.9", "--steps", 6, "--resume", half))["resumed"]
        self.assertEqual(lost["dropped"][:3], ["the optimizer had mean and has none now: it is dropped",
                                               "the optimizer had square and has none now: it is dropped",
                                               "the optimizer had no momentum: it starts at zero"])
        self.assertIn(f"--optimizer '{ADAM}' then, 'sgd:momentum=0.9' now"[:100], "".join(lost["changed"]))
        self.assertIn("--resume-strict: resume: the optimizer had mean",
                      self.refused(2, "--resume", half, "--resume-strict"))

    def test_refused(self):
        for ranks, words, part in (
                (1, ("--optimizer", "sdg"), "unknown optimizer 'sdg': did you mean 'sgd'?"),
                (1, ("--optimizer", "sgd:mu=1"), "sgd: unknown option 'mu'"),
                (1, ("--optimizer", ADAM, "--momentum", 0.9), "--momentum: --optimizer adam has no such option"),
                (1, ("--optimizer", "sgd:momentum=0.5", "--momentum", 0.9), "remove one of them"),
                (1, ("--optimizer", ADAM, "--backend", "naive"), "its update is param -= lr * gradient"),
                (2, ("--optimizer", LARS, "--comm", "sharded"),
                 "--optimizer lars moves whole tensors, and with this --comm or --mesh a rank updates parts"),
                (2, ("--optimizer", LARS, "--mesh", "tensor=2"),
                 "--optimizer lars moves whole tensors, and with this --comm or --mesh a rank updates parts")):
            self.assertIn(part, self.refused(ranks, *words))

    def test_measured(self):
        self.check_measured(ADAM)

    def test_page(self):
        self.check_page("optimizer", "adam")
