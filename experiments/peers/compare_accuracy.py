#!/usr/bin/env python3
r"""Test accuracy of gradwire's models and of their twins in PyTorch, by the same recipe: equal first
weights, batches, rates and momentum, SGD with a cosine down to 0, Fashion-MNIST.

  compare_accuracy.py --model cnn:preset=resnet --epochs 10 --seeds 5

The order of samples is each program's own. Both train a seed at the same time, on one thread each.
"""

import argparse
import math
import os
import subprocess
import sys
import tempfile

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../analysis"))
from tool import need
need("numpy", "scipy", "torch")

import numpy as np
import torch
from scipy import stats
from torch.nn import functional

import compare_torch
import torch_models
from torch_train import read_idx

CLASSES, TESTED = 10, 500  # samples of a test's batch


def load(folder, part):
    """(samples, pixels), and the labels."""
    labels = read_idx(os.path.join(folder, f"{part}-labels-idx1-ubyte.gz"), 8)
    images = read_idx(os.path.join(folder, f"{part}-images-idx3-ubyte.gz"), 16).reshape(len(labels), -1)
    return torch.from_numpy(images.astype(np.float32) / 255), torch.from_numpy(labels.astype(np.int64))


@torch.no_grad()
def accuracy(net, images, labels):
    net.eval()
    right = sum((net(images[at:at + TESTED]).argmax(1) == labels[at:at + TESTED]).sum().item()
                for at in range(0, len(labels), TESTED))
    return right / len(labels)


def train_twin(options):
    """The twin's test accuracy."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    torch.manual_seed(options.child)
    images, labels = load(options.data, "train")
    net = torch_models.build(options.model, images.shape[1], CLASSES)
    torch_models.load(net, options.weights)
    optimizer = torch.optim.SGD(net.parameters(), lr=options.lr, momentum=options.momentum)
    steps = options.epochs * math.ceil(len(labels) / options.batch)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(options.epochs):
        for chosen in torch.randperm(len(labels)).split(options.batch):
            optimizer.zero_grad(set_to_none=True)
            functional.cross_entropy(net(images[chosen]), labels[chosen]).backward()
            optimizer.step()
            schedule.step()
    return accuracy(net, *load(options.data, "t10k"))


def recipe(options):
    return ["--data", options.data, "--model", options.model, "--batch", str(options.batch), "--momentum",
            str(options.momentum)]


def train_both(seed, options, env):
    """(PyTorch's, gradwire's)"""
    ours = [options.gradwire, "train", *recipe(options), "--seed", str(seed), "--quiet", "--out"]
    with tempfile.TemporaryDirectory() as folder:
        first, whole = os.path.join(folder, "first"), os.path.join(folder, "whole")
        compare_torch.run([*ours, first, "--steps", "1", "--lr", "1e-12"])
        twin = subprocess.Popen([sys.executable, __file__, *recipe(options), "--epochs", str(options.epochs), "--lr",
                                 str(options.lr), "--child", str(seed), "--weights", os.path.join(first, "model.gw")],
                                env=env, stdout=subprocess.PIPE, text=True)
        subprocess.run([*ours, whole, "--epochs", str(options.epochs), "--lr", str(options.lr), "--lr-schedule",
                        "cosine"], check=True, stdout=subprocess.DEVNULL)
        told = twin.communicate()[0]
        if twin.returncode != 0:
            compare_torch.fail(f"the twin of seed {seed}: status {twin.returncode}")
        with open(os.path.join(whole, "epochs.csv"), encoding="utf-8") as file:
            head, *_, last = [line.split(",") for line in file.read().splitlines()]
        return float(told), float(dict(zip(head, last))["test_accuracy"])


def summary(pairs):
    """How far apart the means are, with the interval of Welch's test."""
    lines = [f"{'seed':>8}  {'PyTorch':>8}  {'gradwire':>8}"]
    lines += [f"{seed:>8}  {theirs:>8.4f}  {ours:>8.4f}" for seed, (theirs, ours) in pairs.items()]
    theirs, ours = (np.array(side) for side in zip(*pairs.values()))
    lines.append(f"{'mean':>8}  {theirs.mean():>8.4f}  {ours.mean():>8.4f}")
    if len(pairs) > 1:
        low, high = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval(0.95)
        lines += ["", f"gradwire's mean less PyTorch's: {100 * (ours.mean() - theirs.mean()):.2f} points "
                      f"({100 * low:.2f}..{100 * high:.2f}, 95%)"]
    return lines


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="cnn:preset=resnet")
    parser.add_argument("--data", default=compare_torch.find_data())
    parser.add_argument("--epochs", type=compare_torch.positive, default=10)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--seeds", type=compare_torch.positive, default=5)
    parser.add_argument("--gradwire", default=os.path.join(compare_torch.ROOT, "build/release/gradwire"))
    parser.add_argument("--out", help="write the results to OUT.txt and OUT.json")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--weights", help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    options = parse()
    if options.child is not None:
        print(train_twin(options))
        return
    env = compare_torch.torch_environment()
    pairs = {}
    for seed in range(1, options.seeds + 1):
        pairs[seed] = train_both(seed, options, env)
        print(f"seed {seed}: PyTorch {pairs[seed][0]:.4f}, gradwire {pairs[seed][1]:.4f}", file=sys.stderr)
    facts = {**compare_torch.machine_facts(), "pytorch": compare_torch.find_torch(env),
             "gradwire": compare_torch.run([options.gradwire, "--version"]).strip(),
             "model": options.model, "epochs": options.epochs,
             "batch": options.batch, "lr": options.lr, "momentum": options.momentum, "schedule": "cosine"}
    compare_torch.report(options.out, facts, summary(pairs), {"facts": facts, "accuracy": pairs})


if __name__ == "__main__":
    main()
