"""Any number of ranks and threads walks the serial run's loss curve, and ends with equal replicas.

Sums over other numbers of ranks round otherwise, by about 1e-8 a step. Where the activation is
smooth that is all there ever is. ReLU has a kink: about one run in six of 100 steps meets a
pre-activation so near 0 that rounding decides its sign, the one unit's gradient differs, and from
there on the two curves part by percents. So all combinations are compared with tanh, and ReLU over
several seeds, most of which must agree to the end and all of which at the start.
"""

import itertools
import json
import os
import tempfile

import gwrun

STEPS = 100
EXACT = 1e-5
# Others take another way than the serial run on purpose; `sparse` has no exact codec.
STRATEGIES = [one["name"] for one in json.loads(gwrun.said(gwrun.GRADWIRE, "list", "--json"))["strategies"]
              if one["exact"] and one["name"] != "sparse"]
SMOOTH = ("--activation", "tanh")
# 53 KB of parameters: several buckets of the sizes below.
SMALL = ("--data", "synthetic:samples=6400,features=64,classes=10", "--layers", "96,64")


def curve(folder, ranks, batch, *words):
    out = os.path.join(folder, "-".join(["run", str(ranks), str(batch), *words]).replace("/", "_"))
    run = gwrun.train(ranks, out, *SMALL, "--steps", STEPS, "--batch", batch, "--ceilings", "off",
                      *words)
    if run["results"]["steps"] != STEPS:
        raise AssertionError(f"{run['results']['steps']} steps")
    return gwrun.losses(out)


class Curve(gwrun.Case):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            cls.alone = {batch: curve(folder, 1, batch, *SMOOTH) for batch in (64, 50)}

    def setUp(self):
        super().setUp()
        self.serial = dict(self.alone)

    def curve(self, ranks, batch, *words):
        return curve(self.dir, ranks, batch, *words)

    def compare(self, ranks, batch, *words):
        with self.subTest(ranks=ranks, batch=batch, words=words):
            mine = self.curve(ranks, batch, *SMOOTH, *words)
            self.assertLess(gwrun.apart(mine, self.serial[batch]), EXACT)

    def test_it_learns(self):
        for curve in self.serial.values():
            self.assertLess(sum(curve[-10:]), 0.6 * sum(curve[:10]))

    def test_relu(self):
        agree = 0
        for seed in (1, 2, 3, 4):
            serial = self.curve(1, 50, "--seed", str(seed))
            two = self.curve(2, 50, "--seed", str(seed))
            self.assertLess(gwrun.apart(two[:10], serial[:10]), EXACT)
            agree += gwrun.apart(two, serial) < EXACT
        self.assertGreaterEqual(agree, 2)

    def test_fashion_mnist(self):
        one, two = (self.curve(ranks, 50, *SMOOTH, "--data", "fashion-mnist") for ranks in (1, 2))
        self.assertLess(gwrun.apart(two, one), EXACT)

    def test_threads(self):
        for batch in self.serial:
            self.compare(1, batch, "--threads", "2")
        self.compare(2, 64, "--threads", "2", "--comm", "iallreduce")

    def test_ranks(self):
        """Each strategy; each algorithm, and every pair of them: tests/contract."""
        for i, (strategy, algorithm) in enumerate(zip(STRATEGIES, itertools.cycle(("native", "sra")))):
            self.compare(2 + i % 3, (64, 50)[i % 2], "--comm", f"{strategy}:algo={algorithm}")

    def test_dedicated_server(self):
        for update in ("eager", "lazy"):
            self.compare(3, 50, "--comm", "ps:dedicated=1", "--update", update)
        out = self.path("scattered")
        run = gwrun.train(3, out, *SMALL, "--steps", STEPS, "--batch", 50, *SMOOTH, "--comm",
                          "ps:dedicated=1", "--data-layout", "sharded")
        self.assertEqual((run["machine"]["ranks"], run["machine"]["workers"]), (3, 2))
        self.assertEqual({row["samples"] for row in gwrun.batches(out) if row["rank"] == "0"}, {"0"})
        two = self.curve(2, 50, *SMOOTH, "--data-layout", "sharded")
        self.assertLess(gwrun.apart(gwrun.losses(out), two), EXACT)
        gwrun.refusal(gwrun.run(1, "train", "--comm", "ps:dedicated=1"), "start more ranks")

    def test_relaxed_strategies_learn(self):
        for words in (("local:period=4",), ("delayed",), ("gossip",), ("gossip:topology=exponential",),
                      ("powersgd",), ("diloco:period=10",), ("diloco:period=12,fragments=3,tau=2",),
                      ("noloco:period=8",), ("dion:rank=4",),
                      ("local:period=4,momentum=1", "--momentum", "0.5")):
            with self.subTest(words=words):
                curves = [self.curve(3, 64, *SMOOTH, "--lr", "0.05", "--update", update, "--comm",
                                     *words) for update in ("eager", "lazy")]
                self.assertLess(sum(curves[0][-10:]), 0.7 * sum(curves[0][:10]))
                self.assertLess(gwrun.apart(*curves), EXACT)

    def test_largest_elements_learn(self):
        """Lazy, they are the largest of each layer."""
        for update in ("eager", "lazy"):
            losses = self.curve(3, 64, *SMOOTH, "--lr", "0.05", "--update", update, "--comm", "oktopk:ratio=0.05")
            self.assertLess(sum(losses[-10:]), 0.7 * sum(losses[:10]))

    def test_lazy_and_small_buckets(self):
        for strategy in (*STRATEGIES, "iallreduce:bucket=8K", "iallreduce:bucket=13K,progress=none",
                         "iallreduce:bucket=8K,progress=thread"):
            self.compare(2, 64, "--update", "lazy", "--comm", strategy)
        self.compare(2, 50, "--comm", "iallreduce:bucket=8K,progress=thread")

    def test_momentum(self):
        words = ("--momentum", "0.9", "--lr", "0.02", "--weight-decay", "0.0001")
        self.serial[64] = self.curve(1, 64, *SMOOTH, *words)
        for strategy in STRATEGIES:
            self.compare(2, 64, *words, "--comm", strategy)

    def test_fewer_samples_than_ranks(self):
        words = ("--lr", "0.01")  # two samples a step at a higher rate are chaos, not training
        self.serial[2] = self.curve(1, 2, *SMOOTH, *words)
        self.compare(3, 2, *words, "--comm", "iallreduce:algo=sra")
