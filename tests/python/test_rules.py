"""Update rules through the library, against their formulas in numpy (rulecase.py) and, where there is PyTorch,
torch.optim; and clipping by the global norm."""

import json
import os
import sys
import unittest

import gwrun
import numpy as np
from rulecase import RULES, SHAPES, STEPS, gradient, initial, mean, moved
from test_python import launch

RANK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "rules_rank.py")
ROUNDING = 1e-5  # of the largest parameter
CLIP = 3  # well below a gradient's norm
TORCH = {"sgd:momentum=0.9": ("SGD", {"momentum": 0.9}),
         "sgd:momentum=0.9,nesterov=1,weight-decay=0.01": (
             "SGD", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
         "adamw": ("AdamW", {"weight_decay": 0.01}),
         "adamw:beta1=0.8,beta2=0.95,eps=1e-6 --weight-decay 0.1": (
             "AdamW", {"betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1})}


def torch():
    """The module, or None."""
    try:
        import torch as found
        return found
    except ImportError:
        return None


def by_torch(found, words, clip=None):
    name, how = TORCH[words]
    params = {tensor: found.nn.Parameter(found.tensor(p)) for tensor, p in initial().items()}
    rule = getattr(found.optim, name)(params.values(), lr=RULES[words][0], **how)
    for step in range(STEPS):
        for tensor, g in mean(1, step).items():
            params[tensor].grad = found.tensor(g.astype(np.float32))
        if clip:
            found.nn.utils.clip_grad_norm_(params.values(), clip)
        rule.step()
    return {tensor: p.detach().numpy() for tensor, p in params.items()}


@unittest.skipIf(gwrun.cached("GW_SANITIZE"), "a sanitizer's runtime would have to be preloaded")
class Rules(gwrun.Case):
    def library(self, ranks, *words):
        """{words: parameters}"""
        out = self.path("moved.json")
        done = launch(ranks, RANK, out, *words)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return gwrun.read_json(out)

    def assert_near(self, found, wanted, what):
        for name in SHAPES:
            apart = np.abs(np.array(found[name]) - wanted[name]).max() / np.abs(wanted[name]).max()
            self.assertLess(apart, ROUNDING, f"{what}: {name}")
            self.assertGreater(np.abs(wanted[name] - initial()[name]).max(), 100 * ROUNDING, f"{what}: {name}")

    def test_formulas(self):
        """All of the registry, also after what the library carries was saved and loaded."""
        self.assertEqual({words.partition(":")[0].split()[0] for words in RULES},
                         set(gwrun.names("src/optim/optimizers.def")))
        found = self.library(1, *RULES)
        for words in RULES:
            with self.subTest(words=words):
                self.assert_near(found[words], moved(words), words)

    def test_torch(self):
        module = torch()
        if not module:
            self.skipTest(f"{sys.executable} cannot import torch")
        found = self.library(1, *TORCH, f"adamw --clip-norm {CLIP}")
        for words in TORCH:
            with self.subTest(words=words):
                self.assert_near(found[words], by_torch(module, words), words)
        self.assert_near(found[f"adamw --clip-norm {CLIP}"], by_torch(module, "adamw", CLIP), "clipped")

    def test_ranks(self):
        """Whoever updates what: the rules of the mean gradient, clipped or not."""
        listed = json.loads(gwrun.said(gwrun.GRADWIRE, "list", "--json"))
        moves = {e["name"]: e["moves"] for e in listed["optimizers"]}
        words = [f"{rule}{clip} --comm {comm}" for rule in RULES if ":" not in rule and " " not in rule
                 for comm in ("allreduce", "ps", "sharded") for clip in ("", f" --clip-norm {CLIP}")
                 if comm != "sharded" or moves[rule] == "elements"]
        found = self.library(2, *words)
        for one in words:
            with self.subTest(words=one):
                self.assert_near(found[one], moved(one.split()[0], 2, CLIP if "clip" in one else None), one)

    def test_own_gradient(self):
        """What exchanges no gradients clips each rank's own."""
        found = self.library(2, f"sgd --clip-norm {CLIP} --comm local:period={STEPS}")
        means = {name: p.astype(float) for name, p in initial().items()}
        for step in range(STEPS):  # plain sgd's means are those of the steps, whenever they are taken
            for rank in range(2):
                grads = gradient(rank, step)
                norm = np.sqrt(sum((g.astype(float) ** 2).sum() for g in grads.values()))
                for name in SHAPES:
                    means[name] -= RULES["sgd"][0] * min(1, CLIP / (norm + 1e-6)) * grads[name] / 2
        self.assert_near(next(iter(found.values())), means, "local")

    def test_refused(self):
        for words, part in (
                ("sdg", "unknown optimizer 'sdg': did you mean 'sgd'?"),
                ("lamb --comm sharded", "--optimizer lamb moves whole tensors, and with --comm sharded a rank updates"),
                ("adamw --momentum 0.9", "--momentum: --optimizer adamw has no such option"),
                ("sgd --update lazy", "it comes after gradwire_finish, and before gradwire_updated"),
                ("sgd --update lazy --clip-norm 1", "--clip-norm: --update lazy updates a layer before the whole norm"),
                ("sgd --momentum 0.9 --compress topk --comm sparse --error-feedback momentum --clip-norm 1",
                 "--clip-norm: --error-feedback momentum, dgc and ef21 hand out momentum, not a gradient")):
            done = launch(2, RANK, self.path("none"), words)
            self.assertNotEqual(done.returncode, 0, words)
            self.assertIn(part, done.stderr)
