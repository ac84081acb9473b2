"""Convolutional networks: that a step is the arithmetic of PyTorch's, in training and in evaluation, and that they go
where the perceptron goes."""

import gzip
import os
import unittest

import gwrun
import plugincase
import torchcase
from test_model import LOSSY, SAME
from torchcase import torch

DATA = "/usr/share/datasets/fashion-mnist"
SAMPLES, TESTED, WIDTH, STEPS = 40, 30, 4, 6
LENET, RESNET = "cnn", f"cnn:preset=resnet,width={WIDTH}"
CUT = [[{"5,3": "2,3"}.get(word, word) for word in words] for words in SAME]  # LeNet-5 has five units
SMALL = ("--limit", 120, "--limit-test", TESTED, "--batch", 20, "--epochs", 10)
HEADS = {"train": 400, "t10k": 300}  # first images of each file: to inflate all takes longer than most of these runs


class Runs(plugincase.Plugin):
    def setUp(self):
        super().setUp()
        for name, n in HEADS.items():
            for kind, head, size in (("images-idx3", 16, 784), ("labels-idx1", 8, 1)):
                with gzip.open(os.path.join(DATA, f"{name}-{kind}-ubyte.gz")) as file:
                    data = file.read(head + n * size)
                gwrun.write(self.path("images", f"{name}-{kind}-ubyte"), data[:4] + n.to_bytes(4, "big") + data[8:])
        self.small = ("--data", self.path("images"), *SMALL)

    def train(self, ranks, *words, model=LENET):
        out = self.new()
        gwrun.train(ranks, out, *self.small, "--model", model, "--profile", "timers", *words)
        return out

    def test_composes(self):
        """Without batch normalisation any ranks compute what one does, but for a rectifier or a maximum that roundings
        turn now and then."""
        few = ("--steps", 8, "--lr", 0.02)
        loss = gwrun.run_json(self.train(1, *few))["results"]["test_loss"]
        for ranks, *words in (*CUT, (2, "--threads", 2)):
            with self.subTest(ranks=ranks, words=words):
                run = gwrun.run_json(self.train(ranks, *few, *words))
                self.assertAlmostEqual(run["results"]["test_loss"], loss, delta=1e-3 * loss)
        for words in LOSSY:
            with self.subTest(words=words):
                results = gwrun.run_json(self.train(2, *few, *words))["results"]
                self.assertNotEqual(results["test_loss"], loss)
                self.assertLess(results["test_loss"], 2.5)

    def test_resumes_to_the_bit(self):
        self.check_resumes_to_the_bit(*CUT[5])
        with self.subTest("running means"):
            words = (2, "--comm", "iallreduce", "--optimizer", "adamw")
            whole = self.train(*words, model=RESNET)
            half = self.train(*words, "--steps", 30, "--checkpoint-every", 1000, model=RESNET)
            rest = self.train(*words, "--resume", half, "--resume-strict", model=RESNET)
            self.assertEqual(gwrun.model(rest), gwrun.model(whole))

    def test_measured(self):
        self.check_measured()

    def test_running_means_are_no_directions(self):
        """At a rate that moves nothing else they come to what an exchange of gradients makes of them."""
        losses = [gwrun.run_json(self.train(2, "--limit", 400, "--limit-test", 300, "--steps", 20, "--lr", 1e-12, "--comm",
                                            comm, model=RESNET))["results"]["test_loss"] for comm in ("allreduce", "dion")]
        self.assertAlmostEqual(*losses, delta=1e-5)

    def test_running_means_meet(self):
        """Replicas agree on them in every strategy, and each optimizer moves them alike."""
        for words in (("--comm", "sharded"), ("--comm", "local:period=4"), ("--comm", "ps"), ("--optimizer", "muon", "--steps", 100),
                      ("--optimizer", "lamb", "--lr", 0.01), ("--compress", "onebit;min_bytes=1K"), ("--mesh", "pipe=2")):
            with self.subTest(words=words):
                results = gwrun.run_json(self.train(2, "--limit", 400, "--limit-test", 300, "--steps", 60, "--lr", 0.1,
                                                    *words, model=RESNET))["results"]
                self.assertGreater(results["test_accuracy"], 0.3)

    @unittest.skipUnless(torch, "PyTorch is not installed")
    def test_learns_as_pytorchs_does(self):
        """From the same weights, in doubles: losses, parameters and running means, and what these say of other images.
        A rectifier within a rounding of zero may part them."""
        few = ("--limit", SAMPLES, "--batch", SAMPLES, "--lr", 0.02, "--steps")
        (x, y), (other, labels) = (images(name, n) for name, n in (("train", SAMPLES), ("t10k", TESTED)))
        for model, ranks in ((LENET, 1), (LENET, 2), (RESNET, 1)):
            with self.subTest(model=model, ranks=ranks):
                start = self.train(1, *few, 1, "--lr", 1e-12, model=model)
                out = self.train(ranks, *few, STEPS, model=model)
                net = torchcase.twin(model, start, 784, 10)
                want = torchcase.learn(net, torch.optim.SGD(net.parameters(), lr=0.02), x, y, STEPS)
                for ours, theirs in zip(gwrun.losses(out), want, strict=True):
                    self.assertLess(abs(ours - theirs), 1e-3)
                self.assertLess(torchcase.apart(net, torchcase.twin(model, out, 784, 10, first=False)), 1e-3)
                net.eval()
                tested = torch.nn.functional.cross_entropy(net(other), labels).item()
                self.assertLess(abs(gwrun.run_json(out)["results"]["test_loss"] - tested), 1e-3)

    def test_refused(self):
        for words, part in ((("--model", "cnn:width=8"), "width and blocks are of preset=resnet"),
                            (("--model", "cnn", "--image-size", "28x30"), "a sample has 840 inputs: they must be"),
                            (("--model", "cnn:channels=3"), "a sample has 784 inputs: they must be"),
                            (("--model", "cnn", "--image-size", "8x8"), "lenet5 takes images of 12 x 12"),
                            (("--model", "cnn", "--image-size", "400x400"), "more than 1048576 floats of a sample"),
                            (("--model", RESNET, "--mesh", "tensor=2"), "no layers that tensor ranks could share"),
                            (("--model", RESNET, "--mesh", "pipe=2", "--stages", "4,1", "--compress", "onebit"),
                             "have to go exact"),
                            (("--model", RESNET, "--compress", "auto"), "have to go exact"),
                            (("--model", RESNET, "--comm", "oktopk"), "have to go exact"),
                            (("--model", RESNET, "--comm", "demo"), "have to go exact"),
                            (("--model", RESNET, "--clip-norm", 1), "the norm would count")):
            with self.subTest(words=words):
                gwrun.refusal(gwrun.run(2 if "--mesh" in words else 1, "train", *self.small, *words), part)


def images(name, n):
    with gzip.open(os.path.join(DATA, f"{name}-images-idx3-ubyte.gz")) as file:
        pixels = file.read(16 + 784 * n)[16:]
    with gzip.open(os.path.join(DATA, f"{name}-labels-idx1-ubyte.gz")) as file:
        labels = file.read(8 + n)[8:]
    return torch.tensor(list(pixels), dtype=torch.float64).view(n, 784) / 255, torch.tensor(list(labels))
