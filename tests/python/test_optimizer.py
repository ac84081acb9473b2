"""Optimizers in runs: all of the tree, and one that is loaded by its path, train, are checkpointed, resumed, merged and
shared out by what they say of themselves. Rates over the steps, and clipping by the global norm."""

import json
import math
import os

import gwrun
import numpy as np
import plugincase
from plugincase import HALF

SMALL = ("--data", "synthetic:samples=600,features=20,classes=4,test=0.2", "--layers", "24,18,12", "--activation",
         "tanh", "--batch", 20, "--epochs", 2, "--ceilings", "off", "--overhead", 0)
ADAM = os.path.join(os.environ["BUILD"], "tests", "libplugin_adam.so")
LARS = "lars:trust=0.02"
ALL = {"sgd:momentum=0.9,nesterov=1": 0.1, "adamw": 0.01, "lamb": 0.01, LARS: 0.1, "lion": 0.001, "muon": 0.02}
LISTED = {one["name"]: one for one in json.loads(gwrun.said(gwrun.GRADWIRE, "list", "--json"))["optimizers"]}
WHOLE = {rule for rule in ALL if LISTED[rule.partition(":")[0]]["moves"] == "tensors"}  # not parts of tensors
# (ranks, optimizer and what else the run is told): what each keeps from step to step is in other places.
RUNS = ((1, ADAM), (1, f"{ADAM}:beta1=0.8"), (2, ADAM, "--comm", "iallreduce", "--update", "lazy"),
        (2, ADAM, "--comm", "sharded", "--update", "lazy", "--compress", "qsgd:bits=8"), (2, ADAM, "--comm", "ps"),
        (2, ADAM, "--comm", "local:period=7,momentum=1"), (2, ADAM, "--on-nan", "skip", "--comm", "delayed"),
        (2, ADAM, "--mesh", "pipe=2", "--microbatches", 2), (2, ADAM, "--mesh", "tensor=2"),
        (2, LARS, "--comm", "ps", "--update", "lazy"), (2, LARS, "--mesh", "pipe=2", "--microbatches", 2),
        (1, "adamw", "--lr-schedule", "cosine:steps=48,warmup=5,to=0.1"), (2, "adamw", "--clip-norm", 0.1),
        (2, "sgd", "--comm", "dion:rank=2", "--update", "lazy"), *((2, rule) for rule in ALL))


class Optimizer(plugincase.Plugin):
    def train(self, ranks, optimizer, *words):
        """The folder of a run."""
        out = self.new()
        rate = ALL.get(optimizer, 0.01 if "adam" in optimizer else 0.1)
        gwrun.train(ranks, out, *SMALL, "--profile", "timers", "--lr", rate, "--optimizer", optimizer, *words)
        return out

    def parameters(self, out):
        """They end the file, but for a checksum."""
        n = gwrun.run_json(out)["parameters"]
        return np.frombuffer(gwrun.model(out)[-4 - 4 * n:-4], np.float32).astype(float)

    def assert_near(self, out, other, most=1e-5):
        """Of the largest parameter."""
        a, b = self.parameters(out), self.parameters(other)
        self.assertLess(np.abs(a - b).max() / np.abs(b).max(), most)

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

    def test_whole_registry(self):
        """Any number of ranks, who share out the work in any way, come to what one comes to; or it is refused."""
        self.assertEqual({rule.partition(":")[0] for rule in ALL}, set(gwrun.names("src/optim/optimizers.def")))
        for rule in ALL:
            with self.subTest(rule=rule):
                words = ("--steps", 12, "--save-model", "on")
                one = self.train(1, rule, *words)
                self.assertTrue(np.isfinite(self.parameters(one)).all())
                two = self.train(2, rule, *words)
                self.assert_near(two, one)
                for ranks in (3, 4):
                    self.assert_near(self.train(ranks, rule, *words), one)
                self.assert_near(self.train(2, rule, *words, "--mesh", "pipe=2"), one)
                self.train(2, rule, *words, "--comm", "local:period=4,momentum=1")
                for parts in (("--comm", "sharded"), ("--mesh", "tensor=2")):
                    if rule in WHOLE:
                        self.assertIn("moves whole tensors", self.refused(2, "--optimizer", rule, *parts))
                    else:
                        self.assert_near(self.train(2, rule, *words, *parts), one)

    def test_products_count(self):
        """Muon's: 5 steps, each of two products with the shorter side s and one of s x s, but for the last layer."""
        work = gwrun.run_json(self.train(1, "muon", "--steps", 2))["work"]
        of = sum(5 * (4 * rows * cols * min(rows, cols) + 2 * min(rows, cols) ** 3)
                 for rows, cols in ((20, 24), (24, 18), (18, 12)))
        self.assertEqual(work["update_flops"], of)
        self.assertEqual(gwrun.run_json(self.train(1, "adamw", "--steps", 2))["work"]["update_flops"], 0)

    def test_schedules(self):
        """The rates of steps, by their formulas: a climb over 4 steps, and what comes after it, of 20 steps in all."""
        def after(step):
            return (step - 5) / 16
        formulas = {"constant": lambda step: 1, "linear": lambda step: 1 - after(step),
                    "linear:to=0.25": lambda step: 1 - 0.75 * after(step),
                    "cosine:to=0.1": lambda step: 0.1 + 0.9 * (1 + math.cos(math.pi * after(step))) / 2,
                    "step:every=3,factor=0.5": lambda step: 0.5 ** ((step - 5) // 3),
                    "wsd:decay=0.25": lambda step: min(1, (1 - after(step)) / 0.25)}
        names = {one["name"] for one in json.loads(gwrun.said(gwrun.GRADWIRE, "list", "--json"))["schedules"]}
        self.assertEqual({name.partition(":")[0] for name in formulas}, names)
        for spec, formula in formulas.items():
            ends = spec.startswith(("linear", "cosine", "wsd"))
            spec += f"{',' if ':' in spec else ':'}warmup=4" + (",steps=20" if ends else "")
            for step in (3, 4, 5, 6, 11, 17, 20, 23):
                with self.subTest(spec=spec, step=step):
                    run = gwrun.train(0, self.new(), *SMALL, "--profile", "off", "--steps", step,
                                      "--lr", 0.2, "--lr-schedule", spec)
                    last = min(step, 21) if ends else step
                    self.assertAlmostEqual(run["rate"]["last"], 0.2 * (step / 4 if step < 5 else formula(last)))
                    self.assertAlmostEqual(run["rate"]["first"], 0.05)
                    self.assertEqual(run["rate"]["schedule_end"], 20 if ends else None)

    def test_rate_moves(self):
        """The rate that is told is the one that moves: of plain sgd, a first step is as long as its rate."""
        start, whole, half = (self.parameters(self.train(1, "sgd", "--steps", 1, *words)) for words in (
            ("--lr", 1e-12), (), ("--lr-schedule", "linear:warmup=2,steps=9")))
        self.assertLess(np.abs((half - start) * 2 - (whole - start)).max(), 1e-6)
        self.assertGreater(np.abs(whole - start).max(), 1e-3)

    def test_warmup_either_way(self):
        a = self.train(1, "adamw", "--steps", 6, "--lr-warmup", 4)
        b = self.train(1, "adamw", "--steps", 6, "--lr-schedule", "constant:warmup=4")
        self.assertEqual(gwrun.model(a), gwrun.model(b))

    def test_changed_end_is_told(self):
        half = self.train(1, "adamw", "--lr-schedule", "cosine", "--steps", 9, "--checkpoint-every", 1000)
        run = gwrun.run_json(self.train(1, "adamw", "--lr-schedule", "cosine", "--steps", 12, "--resume", half))
        self.assertIn("--lr-schedule ended with step 9 then, 12 now", run["resumed"]["changed"])

    def test_clips(self):
        """A mesh, several ranks and owners of parts come to what one rank does; and it does clip, by a message that is
        counted where ranks have parts of the norm."""
        words = ("--clip-norm", 0.2, "--steps", 12)
        one = self.train(1, "sgd", *words)
        told = gwrun.run_json(one)["comm"]["clip"]
        self.assertEqual((told["norm"], told["of"], told["updates"]), (0.2, "the mean gradient", 12))
        self.assertGreater(told["clipped"], 3)
        self.assertNotEqual(gwrun.model(one), gwrun.model(self.train(1, "sgd", "--steps", 12)))
        for ranks, more in ((2, ("--comm", "sharded")), (2, ("--comm", "ps")), (3, ()), (2, ("--mesh", "pipe=2")),
                            (2, ("--mesh", "tensor=2")), (4, ("--mesh", "data=2,pipe=2", "--comm", "sharded")),
                            (4, ("--mesh", "pipe=2,tensor=2", "--microbatches", 2)),
                            (2, ("--comm", "iallreduce:bucket=1K"))):
            with self.subTest(ranks=ranks, more=more):
                self.assert_near(self.train(ranks, "sgd", *words, *more), one)
        own = gwrun.run_json(self.train(2, "sgd", *words, "--comm", "local"))["comm"]["clip"]
        self.assertEqual(own["of"], "each replica's own gradient")
        sharded = ("--steps", 12, "--comm", "sharded:algo=ring")
        counted, plain = (sum(int(row["collectives"]) for row in gwrun.batches(self.train(2, "sgd", *sharded, *more)))
                          for more in (("--clip-norm", 0.2), ()))
        self.assertEqual(counted - plain, 2 * 12)

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
                (1, ("--optimizer", "sgd:nesterov=1"), "sgd: nesterov=1 is a form of momentum, and there is none here"),
                (1, ("--lr-schedule", "cosin"), "unknown schedule 'cosin': did you mean 'cosine'?"),
                (1, ("--lr-schedule", "wsd:warmup=3", "--lr-warmup", 3), "remove one of them"),
                (1, ("--lr-schedule", "linear:warmup=9,steps=9"), "it ends with step 9, and its warm-up takes 9"),
                (2, ("--clip-norm", 1, "--update", "lazy"), "a layer's update would come before the whole norm"),
                (2, ("--clip-norm", 1, "--momentum", 0.9, "--error-feedback", "momentum", "--compress", "topk"),
                 "--error-feedback momentum, dgc and ef21 hand out momentum, not a gradient"),
                (2, ("--optimizer", "adamw", "--comm", "dion"), "--optimizer adamw takes gradients: use --optimizer sgd"),
                (1, ("--momentum", 0.9, "--comm", "dion"), "--optimizer sgd takes gradients: use --optimizer sgd"),
                (2, ("--weight-decay", 0.1, "--comm", "zerooneadam"), "the weight decay of the steps since would be lost"),
                (2, ("--clip-norm", 1, "--comm", "dion"), "hands out the direction of an update, not a gradient"),
                (2, ("--optimizer", LARS, "--comm", "sharded"),
                 "--optimizer lars moves whole tensors, and with this --comm or --mesh a rank updates parts"),
                (2, ("--optimizer", LARS, "--mesh", "tensor=2"),
                 "--optimizer lars moves whole tensors, and with this --comm or --mesh a rank updates parts")):
            self.assertIn(part, self.refused(ranks, *words))

    def test_measured(self):
        self.check_measured(ADAM)

    def test_page(self):
        self.check_page("optimizer", "adam")
