"""A transformer on text: what is read, that its step is the arithmetic of PyTorch's, and that it goes where the
perceptron goes."""

import gzip
import unittest

import gwrun
import plugincase
import torchcase
from test_model import LOSSY, SAME
from torchcase import torch

LICENSE = "/usr/share/common-licenses/GPL-3"
CONTEXT, WIDTH, HEADS, LAYERS = 16, 24, 3, 3  # eight units, as test_model's cuts want
STEPS = 30
MODEL = ("--model", f"gpt:layers={LAYERS},heads={HEADS},width={WIDTH},context={CONTEXT}")
# Two of three heads on one rank
SHARED = [(2, "--mesh", "tensor=2"), (3, "--mesh", "tensor=3", "--tensor-chunks", 2),
          (4, "--mesh", "tensor=2,pipe=2", "--microbatches", 4, "--timetable", "zb", "--recompute", "on"),
          (4, "--mesh", "data=2,tensor=2", "--comm", "iallreduce:bucket=2K", "--update", "lazy")]
SMALL = ("--data", f"text:{LICENSE}", "--limit", 480, "--limit-test", 60, "--batch", 20, "--epochs", 2)


class Runs(plugincase.Plugin):
    def train(self, ranks, *words):
        out = self.new()
        gwrun.train(ranks, out, *SMALL, *MODEL, "--profile", "timers", *words)
        return out

    def test_composes(self):
        few = ("--steps", 8, "--lr", 0.02)
        loss = gwrun.run_json(self.train(1, *few))["results"]["test_loss"]
        for ranks, *words in (*SAME, *SHARED, (2, "--threads", 2), (2, "--partition", "sizes:1,3"),
                              (2, "--data-layout", "sharded")):
            with self.subTest(ranks=ranks, words=words):
                run = gwrun.run_json(self.train(ranks, *few, *words))
                if {"--partition", "--data-layout"} & set(words):  # other batches
                    self.assertLess(abs(run["results"]["test_loss"] - loss), 0.1 * loss)
                else:
                    self.assertAlmostEqual(run["results"]["test_loss"], loss, delta=1e-5 * loss)
        for words in (*LOSSY, ("--mesh", "tensor=2", "--compress-activations", "qsgd:bits=8")):
            with self.subTest(words=words):
                results = gwrun.run_json(self.train(2, *few, *words))["results"]
                self.assertNotEqual(results["test_loss"], loss)
                self.assertLess(results["test_loss"], 4.6)  # below ln of the characters: it learns

    def test_resumes_to_the_bit(self):
        for words in (SAME[1], *SAME[5:8], SHARED[2]):
            self.check_resumes_to_the_bit(*words)

    def test_measured(self):
        self.check_measured()

    def test_is_evaluated(self):
        out = self.train(2, "--limit", 980, "--optimizer", "adamw", "--lr", 0.003, "--epochs", 8)
        accuracy = gwrun.run_json(out)["results"]["test_accuracy"]
        self.assertGreater(accuracy, 0.2)  # the most frequent character alone: 0.17
        said = gwrun.well(gwrun.run(1, "eval", "--model", out, *SMALL[:2], *SMALL[4:6]))
        self.assertIn(f"accuracy {accuracy:.4f}", said)

    @unittest.skipUnless(torch, "PyTorch is not installed")
    def test_learns_as_pytorchs_does(self):
        """In doubles, by all samples, from the same weights."""
        samples = 100
        few = ("--limit", samples, "--batch", samples, "--limit-test", 1)
        start = self.train(1, *few, "--steps", 1, "--lr", 1e-12)
        text = gwrun.read(LICENSE).encode()
        letters = sorted(set(text))
        tokens = torch.tensor([letters.index(c) for c in text[:samples * CONTEXT + 1]])
        x, y = tokens[:-1].view(samples, CONTEXT), tokens[1:]
        for name, rate in (("sgd", 0.01), ("adamw", 1e-4)):
            net = torchcase.twin(MODEL[1], start, CONTEXT, len(letters))
            made = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[name](net.parameters(), lr=rate)
            want = torchcase.learn(net, made, x, y, STEPS)
            for ranks in (1, 2):
                with self.subTest(optimizer=name, ranks=ranks):
                    got = gwrun.losses(self.train(ranks, *few, "--epochs", STEPS, "--lr", rate, "--optimizer", name))
                    self.assertLess(got[-1], got[0] - 0.1)
                    for i, (one, other) in enumerate(zip(got, want, strict=True)):
                        self.assertLess(abs(one - other), 1e-5, f"step {i + 1}")


class Texts(gwrun.Case):
    def run_on(self, content, *words, kind="text"):
        path = self.path("text")
        with open(path, "wb") as file:
            file.write(content)
        return gwrun.run(1, "train", "--data", f"{kind}:{path}", *MODEL, "--batch", 2, "--epochs", 1, "--overhead", 0,
                         "--ceilings", "off", "--papi-group", "none", *words)

    def test_what_is_read(self):
        """Nine tenths train; a window has `context` characters, and the one behind it."""
        content = b"abcd" * 100
        for kind, classes in (("text", 4), ("bytes", 256)):
            said = gwrun.well(self.run_on(content, kind=kind))
            self.assertIn(f"text: 22 training, 0 validation, 2 test samples of {CONTEXT} inputs, {classes} classes",
                          said)
        self.assertIn("22 training", gwrun.well(self.run_on(gzip.compress(content))))

    def test_refused(self):
        for content, words, part in (
                (b"", (), "no window of 16 fits"), (b"abc" * 50, (), "no window of 16 fits"),
                (b"a" * 400, (), "one character again and again"),
                (b"abcd" * 100, ("--image-scale", 2), "a text has no images to enlarge"),
                (b"abcd" * 100, ("--model", "gpt:width=10,heads=3"), "must be a multiple of heads"),
                (b"abcd" * 12000, ("--model", "gpt:context=4096,heads=256,width=256"), "a shorter context"),
                (b"abcd" * 100, ("--model", "mlp"), "give --model gpt"),
                (b"abcd" * 100, ("--partition", "labels:alpha=1"), "give sizes")):
            with self.subTest(words=words, content=content[:8]):
                gwrun.refusal(self.run_on(content, *words), part)
        for ranks, words, part in ((4, ("--mesh", "tensor=4"), "unit 1 of the model gpt comes in 3 pieces: at most tensor=3"),
                                   (2, ("--mesh", "tensor=2", "--tensor-split", "columns"), "it is of dense layers")):
            gwrun.refusal(gwrun.run(ranks, "train", *SMALL, *MODEL, *words), part)
        gwrun.refusal(gwrun.run(1, "train", *MODEL), "holds no text, which the model reads")
        gwrun.refusal(gwrun.run(1, "train", "--data", "text:/nowhere", *MODEL), "/nowhere")
