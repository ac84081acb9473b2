"""A model that the tree does not know, loaded by its path, goes where the perceptron goes: `residual` keeps more than its
outputs for the backward pass."""

import json
import math
import os
import re
import struct

import gwrun
import plugincase

SMALL = ("--data", "synthetic:samples=600,features=20,classes=4,test=0.2", "--batch", 20, "--epochs", 2, "--ceilings",
         "off", "--overhead", 0)
PATH = os.path.join(os.environ["BUILD"], "tests", "libplugin_residual.so")
MODEL = ("--model", f"{PATH}:width=24,blocks=6")
# (ranks, what else the run is told): the arithmetic of one rank, in another order.
SAME = [(2,), (3, "--comm", "iallreduce:bucket=2K", "--update", "lazy"), (2, "--comm", "sharded"), (2, "--comm", "ps"),
        (1, "--microbatches", 4), (2, "--mesh", "pipe=2", "--microbatches", 4, "--recompute", "on"),
        (4, "--mesh", "data=2,pipe=2", "--microbatches", 2, "--stages", "5,3")]
SAME += [(2, "--mesh", "pipe=2", "--microbatches", 4, "--timetable", name) for name in
         gwrun.names("comm/pipeline/timetables.def")]
LOSSY = [("--compress", "qsgd:bits=8;layer0=none"), ("--comm", "sparse", "--compress", "topk:ratio=0.1"),
         ("--comm", "powersgd"), ("--comm", "local:period=4"), ("--mesh", "pipe=2", "--compress-activations", "fp16")]


class Export(gwrun.Case):
    def test_tensors(self):
        """Names and shapes are those of the page, and the floats those of model.gw."""
        out, to = self.path("run"), self.path("model.safetensors")
        gwrun.train(1, out, *SMALL, "--layers", "7", "--epochs", 1)
        gwrun.ok(1, "eval", "--model", out, "--export", to)
        data, saved = (gwrun.read_bytes(path) for path in (to, os.path.join(out, "model.gw")))
        size, = struct.unpack_from("<Q", data)
        header, floats = json.loads(data[8:8 + size]), data[8 + size:]
        shapes = {"layer.0.0": [20, 7], "layer.0.1": [7], "layer.1.0": [7, 4], "layer.1.1": [4]}
        self.assertEqual({name: tensor["shape"] for name, tensor in header.items()}, shapes)
        at = 0
        for name, tensor in header.items():
            end = at + 4 * math.prod(shapes[name])
            self.assertEqual((tensor["dtype"], tensor["data_offsets"]), ("F32", [at, end]))
            at = end
        self.assertEqual((len(floats), size % 8), (at, 0))
        self.assertEqual(saved[-4 - at:-4], floats)
        for name, says in (("model.bin", "FILE.safetensors"), (self.path("no/model.safetensors"), "cannot write")):
            failed = gwrun.run(1, "eval", "--model", out, "--export", name)
            self.assertIn(says, gwrun.failure(failed, 2))


class Model(plugincase.Plugin):
    def train(self, ranks, *words):
        """The folder of a run."""
        out = self.new()
        gwrun.train(ranks, out, *SMALL, *MODEL, "--profile", "timers", *words)
        return out

    def test_composes(self):
        few = ("--steps", 8, "--lr", 0.02)  # rounding grows with each step
        loss = gwrun.run_json(self.train(1, *few))["results"]["test_loss"]
        for ranks, *words in SAME:
            with self.subTest(ranks=ranks, words=words):
                run = gwrun.run_json(self.train(ranks, *few, *words))
                self.assertAlmostEqual(run["results"]["test_loss"], loss, delta=1e-5 * loss)
        exact = gwrun.run_json(self.train(2))["results"]["test_loss"]
        for words in LOSSY:
            with self.subTest(words=words):
                results = gwrun.run_json(self.train(2, *words))["results"]
                self.assertGreater(abs(results["test_loss"] - exact), 1e-3 * exact)
                self.assertGreater(results["test_accuracy"], 0.6)  # four classes

    def test_resumes_to_the_bit(self):
        for words in (SAME[1], *SAME[5:8]):
            self.check_resumes_to_the_bit(*words)

    def test_is_saved_by_its_name(self):
        out = self.train(2)
        gwrun.refusal(gwrun.run(1, "eval", "--model", out, "--data", SMALL[1]), "name it with --plugin")
        said = gwrun.well(gwrun.run(1, "eval", "--model", out, "--data", SMALL[1], "--plugin", PATH))
        accuracy = gwrun.run_json(out)["results"]["test_accuracy"]
        self.assertIn(f"accuracy {accuracy:.4f}", said)
        plain = self.train(1, "--model", "mlp")
        gwrun.refusal(gwrun.run(1, "eval", "--model", plain, "--data", SMALL[1], "--plugin", "./none.so"),
                      "is not a plugin's: remove the option")

    def test_times_that_no_twin_has_are_absent(self):
        """Products are counted and timed, its elementwise kernels are its own."""
        out = self.path("timed")
        work = gwrun.train(1, out, *SMALL[:-4], *MODEL, "--steps", 40, ceilings=None)["work"]
        self.assertEqual(len(work["products"]), 2 + 3 * 7)
        self.assertEqual(work["flops"], sum(p["flops"] for p in work["products"]))
        self.assertGreater(min(p["alone_s"] for p in work["products"]), 0)
        self.assertIsNone(work["pointwise_bytes"])
        for row in gwrun.batches(out):
            self.assertEqual({row[name] for name in row if re.search("_(twin|model)_", name)}, {""})
        shown = gwrun.script(os.path.join(gwrun.SOURCE, "analysis", "show"), out)
        self.assertIn(f"model {MODEL[1]} on synthetic", shown.stdout)
        self.assertNotIn("nan", shown.stdout)
        gwrun.well(gwrun.script(os.path.join(gwrun.SOURCE, "analysis", "report"), out, "--out", self.path("page.html")))

    def test_measured(self):
        self.check_measured()

    def test_refused(self):
        for ranks, words, part in (
                (1, ("--model", "mpl"), "unknown model 'mpl': did you mean 'mlp'?"),
                (1, (*MODEL[:1], f"{PATH}:depth=3"), "residual: unknown option 'depth'"),
                (1, (*MODEL, "--layers", "5"), "it is an option of the model mlp"),
                (1, ("--model", f"{PATH}:width={'0' * 128}9"), "longer than 127 characters"),
                (2, (*MODEL, "--mesh", "tensor=2"),
                 "the model residual has no layers that tensor ranks could share")):
            gwrun.refusal(gwrun.run(ranks, "train", *SMALL, *words), part)

    def test_page(self):
        self.check_page("model", "residual")
