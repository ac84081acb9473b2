"""`gradwire replay`: a profile's steps through the library, what is said of them, what is refused."""

import copy
import csv
import glob
import json
import math
import os
import re
import statistics
import sys
import unittest

import gwrun

FOLDER = os.path.join(gwrun.SOURCE, "profiles")
TENSOR = {"name": "a.weight", "shape": [30, 40], "group": 0, "forward_s": 0.001, "backward_s": 0.002, "std": 1e-3}
PROFILE = {
    "schema": 1, "model": "tiny", "source": "a test", "device": "a device", "machine": "a machine",
    "date": "2026-11-24", "torch": None, "threads": 1, "batch": 8, "optimizer_s": 0.002,
    "tensors": [TENSOR, {**TENSOR, "name": "a.bias", "shape": [30], "forward_s": 0},
                {**TENSOR, "name": "b.weight", "shape": [10, 30], "group": 1},
                {**TENSOR, "name": "b.bias", "shape": [10], "group": 1, "std": 0}]}
FORWARD_S, BACKWARD_S = 0.003, 0.008


def changed(path, value):
    """The profile with a value at a path of keys; None: without it."""
    profile = copy.deepcopy(PROFILE)
    *way, last = path
    at = profile
    for key in way:
        at = at[key]
    if value is None:
        del at[last]
    else:
        at[last] = value
    return profile


class Replay(gwrun.Case):
    def setUp(self):
        super().setUp()
        self.profile = self.path("profile.json")
        self.write(PROFILE)

    def write(self, profile):
        gwrun.write(self.profile, profile if isinstance(profile, str) else json.dumps(profile))

    def call(self, *words, ranks=2):
        return gwrun.run(ranks, "replay", self.profile, "--out", self.out, *words)

    def replay(self, *words, ranks=2):
        told = gwrun.well(self.call("--overwrite", *words, ranks=ranks))
        return gwrun.run_json(self.out), told

    def test_waits_as_long_as_the_profile_says(self):
        """In each step: an end comes late, never early, so the sum is no less."""
        for compute in "sleep", "spin":
            run, said = self.replay("--compute", compute, "--speed", "2", "--steps", "5")
            rows = gwrun.batches(self.out)
            self.assertEqual(len(rows), 2 * 5)
            for row in rows:
                self.assertGreater(float(row["wall_s"]), (FORWARD_S + BACKWARD_S + 0.002) / 2 * 0.98)
            # A nap that ended late takes from the next part of its step; spun ones begin after what was copied.
            least = statistics.median if compute == "sleep" else min
            for column, seconds in (("forward_s", FORWARD_S), ("backward_s", BACKWARD_S), ("update_s", 0.002)):
                self.assertGreater(least(float(row[column]) for row in rows), seconds / 2 * 0.5)
            slept = compute == "sleep"  # to be off the processor is what it is for
            self.assertEqual([row["interrupted"] == "" for row in rows], [slept] * 10)
            self.assertEqual(run["results"]["summary"]["interrupted"] is None, slept)
            self.assertEqual((run["program"], run["replay"]["compute"], run["replay"]["speed"]), ("replay", compute, 2))
            self.assertIn("replayed: tiny, 4 tensors, 1540 parameters; batch 8 on a device (a machine)", said)
            self.assertRegex(said, r"\nstep [\d.]+ ms, exposed communication [\d.]+ ms, in flight .* wire bytes a rank\n")

    def test_every_strategy(self):
        for strategy in gwrun.names("comm/strategies.def"):
            for update in "eager", "lazy":
                with self.subTest(strategy=strategy, update=update):
                    run, _ = self.replay("--comm", strategy, "--compress", "topk" if strategy == "sparse" else "none",
                                         "--update", update, "--steps", "3", "--speed", "100")
                    self.assertEqual(run["results"]["steps"], 3)
                    self.assertEqual(run["comm"]["strategy"], strategy)

    def test_a_new_strategy_of_parameters_moves_them(self):
        """`local` under another name, outside the tree. Where nothing moves, zlib sends next to nothing."""
        text = gwrun.read(gwrun.SOURCE, "comm/strategy/local.c")
        text = text.replace("gw_strategy_local", "gw_strategy_plugin").replace('"local"', '"average"')
        path = gwrun.plugin(self.path("average"), text)
        sent = []
        for comm in "local", path:
            run, _ = self.replay("--comm", f"{comm}:period=1", "--compress", "zlib", "--steps", "4", "--speed", "100")
            sent.append(run["results"]["wire_bytes"])
        self.assertEqual(*sent)
        self.assertGreater(sent[0], 2 * 4 * 1540 * 2)  # of 4 bytes a parameter, at most

    def test_buckets(self):
        """Gradients wait for their bucket to be full: one that holds them all is exchanged when the backward
        pass is over, and one that holds the last tensors (1,240 bytes) when these are there."""
        for megabytes, seconds in ((1, FORWARD_S + BACKWARD_S), (1 / 1024, FORWARD_S + BACKWARD_S / 2)):
            run, _ = self.replay("--compute", "spin", "--comm", "iallreduce:bucket=64", "--steps", "3", "--collectives",
                                 "--bucket-mb", megabytes)
            self.assertEqual(run["replay"]["bucket_mb"], megabytes)
            begins = {(row["rank"], row["step"]): float(row["t_start_s"]) for row in gwrun.batches(self.out)}
            for row in gwrun.rows(self.out, "collectives.csv"):
                self.assertGreater(float(row["start_s"]) - begins[row["rank"], row["step"]], 0.999 * seconds)

    def test_without_a_folder(self):
        """The same is printed, but where the folder is, and nothing is left."""
        words = ("--comm", "iallreduce", "--steps", "2", "--speed", "100")
        kept = gwrun.well(self.call(*words))
        said = gwrun.well(gwrun.run(2, "replay", self.profile, *words, cwd=self.dir))
        shown = [re.sub(r"[0-9.]+ ms|run folder: .*\n|warning: .*\n", "", text) for text in (said, kept)]
        self.assertEqual(*shown)
        self.assertIn("run folder: ", kept)
        self.assertNotIn("run folder: ", said)
        self.assertEqual(sorted(os.listdir(self.dir)), ["profile.json", "run"])

    def test_servers(self):
        run, _ = self.replay("--comm", "ps:dedicated=1", "--steps", "2", "--speed", "100")
        self.assertEqual(run["machine"]["workers"], 1)
        self.assertEqual({row["rank"]: row["samples"] for row in gwrun.batches(self.out)}, {"0": "0", "1": "8"})

    def test_gradients(self):
        """Captured ones are those of the file; drawn ones depend on the seed alone."""
        path = self.path("gradients")
        gwrun.write(path, b"\0" * 4 * 1540 * 3)
        topk = ("--comm", "sparse", "--compress", "threshold:value=0.0001", "--steps", "2", "--speed", "100")
        drawn, said = self.replay(*topk)
        self.assertTrue(drawn["replay"]["data_dependent"])
        self.assertIn("give captured ones by --gradients", said)
        captured, said = self.replay(*topk, "--gradients", path)
        self.assertFalse(captured["replay"]["data_dependent"])
        self.assertNotIn("give captured ones", said)
        self.assertLess(captured["results"]["wire_bytes"], drawn["results"]["wire_bytes"])
        self.assertEqual(self.replay(*topk)[0]["results"]["wire_bytes"], drawn["results"]["wire_bytes"])
        oktopk = ("--comm", "oktopk:ratio=0.05", "--steps", "2", "--speed", "100")
        self.assertTrue(self.replay(*oktopk)[0]["replay"]["data_dependent"])
        with open(path, "ab") as file:
            file.write(b"\0")
        self.refused(self.call("--gradients", path), "has 18481 bytes: must be a multiple of the 6160 of one step")
        self.refused(self.call("--gradients", "/nonesuch"), "/nonesuch")

    def test_shown_as_replayed(self):
        self.replay("--steps", "2", "--speed", "100")
        done = gwrun.finished([sys.executable, "-B", os.path.join(gwrun.SOURCE, "analysis", "show"), self.out])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("REPLAYED: tiny of a device (a machine), 100 times as fast", done.stdout)
        self.assertNotIn("was interrupted", done.stdout)
        other = os.path.join(self.out, "..", "report")
        done = gwrun.finished([sys.executable, "-B", os.path.join(gwrun.SOURCE, "analysis", "report"), self.out,
                               "--out", other + ".html", "--paper", other + ".paper"])
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn(": 1 runs: 1 done; ", done.stdout)
        gwrun.quiet(gwrun.script(os.path.join(gwrun.SOURCE, "analysis", "compare"), self.out, self.out))

    def test_study_with_simulated_cells(self):
        """Beside real ranks of the same profile; each cell of the study is checked, and marked as what it is."""
        spec = os.path.join(self.dir, "beside.yaml")
        gwrun.write(spec, f"claim: x\ncommand: gradwire replay {self.profile}\nbase: --steps 2 --speed 100\nfactors:\n"
                    "  place: {real: {ranks: 2}, few: {ranks: 2, link: '8gbit,5us'}, many: {ranks: 64, link: '8gbit,5us'}}\n"
                    "  comm: ['allreduce:algo=ring', 'allreduce:algo=doubling']\n")
        runner, out = os.path.join(gwrun.SOURCE, "experiments", "run"), os.path.join(self.dir, "study")
        build = os.path.dirname(gwrun.GRADWIRE)
        listed = gwrun.said(runner, spec, "--build", build, "--dry-run")
        self.assertEqual(listed.count("64 simulated ranks  "), 2)
        self.assertIn("gradwire simulate --profile ", listed)
        gwrun.said(runner, spec, "--build", build, "--out", out)
        table = gwrun.said(os.path.join(gwrun.SOURCE, "analysis", "export"), out, "--compact")
        rows = list(csv.DictReader(table.splitlines()))
        self.assertEqual(sorted((row["level.place"], row["ranks"], "simulated: " in row["marks"]) for row in rows),
                         sorted([("real", "2", False), ("few", "2", True), ("many", "64", True)] * 2))
        sent = {(row["level.place"], row["level.comm"]): row["run_wire_bytes"] for row in rows}
        for comm in {comm for _, comm in sent}:
            more = int(sent["real", comm]) - int(sent["few", comm])  # a float a step and rank: who has samples
            self.assertEqual(more, 2 * 2 * 4)
        gwrun.write(spec, gwrun.read(spec).replace("algo=doubling", "algo=shm"))
        done = gwrun.finished([runner, spec, "--build", build, "--dry-run"])
        self.assertIn("algo=shm may work in memory that ranks share", done.stderr)
        self.assertEqual(done.returncode, 2)

    # ---- refusals ----

    def refused(self, done, why):
        gwrun.refusal(done, why)
        self.assertFalse(os.path.exists(self.out) and os.listdir(self.out) and "run.json" not in os.listdir(self.out))

    def test_profiles_refused(self):
        at = f"{self.profile}: "
        for profile, why in (
                (changed(["model"], None), at + "model: is missing: add it"),
                (changed(["schema"], 2), at + "schema: 2: must be a whole number from 1 to 1"),
                (changed(["thread"], 2), at + "thread: unknown key: remove it"),
                (changed(["date"], "today"), at + 'date: "today": must be a date such as'),
                (changed(["torch"], 2), at + "torch: 2: must be a text of 1 to 200 characters, or null"),
                (changed(["tensors"], []), at + "tensors: must be a list of 1 to 16384 tensors"),
                (changed(["tensors", 1], 7), at + "tensor 1: tensors: 7: must be an object"),
                (changed(["tensors", 2, "std"], -1), at + "tensor 2 (b.weight): std: -1: must be a number from 0 to"),
                (changed(["tensors", 2, "std"], None), at + "tensor 2 (b.weight): std: is missing"),
                (changed(["tensors", 0, "shape"], [3, 0]), at + "tensor 0 (a.weight): shape: [3,0]: must be a list"),
                (changed(["tensors", 0, "shape"], [2**31]), at + "tensor 0 (a.weight): shape: [2147483648]: must be"),
                (changed(["tensors", 0, "group"], 1), at + "tensor 0 (a.weight): group: 1: must be 0"),
                (changed(["tensors", 3, "group"], 3), at + "tensor 3 (b.bias): group: 3: must be 1 or 2: groups rise"),
                (changed(["tensors", 0, "activation"], 3), at + "tensor 1 (a.bias): group: 0: the tensor before it has an"),
                (changed(["tensors", 1, "activation"], 0), at + "tensor 1 (a.bias): activation: 0: must be a whole number"),
                (changed(["tensors", 1, "shard"], 1), at + "tensor 1 (a.bias): shard: 1: must be one of the 1 dimensions"),
                (changed(["tensors", 1, "forward_sum"], 0), at + "tensor 1 (a.bias): forward_sum: 0: must be a whole"),
                (changed(["tensors"], [{**PROFILE["tensors"][0], "backward_sum": 2}, {**PROFILE["tensors"][1], "input_parts": 2}]),
                 at + "tensor 1 (a.bias): input_parts: stands in a group with a backward_sum"),
                (changed(["tensors", 1, "forward_gather"], 2), at + "tensor 1 (a.bias): forward_gather: must stand in the last group"),
                (changed(["tensors", 3, "name"], "a.bias"), at + "tensor 3 (a.bias): name: stands at tensor 1 already"),
                (changed(["tensors", 3, "name"], "a b"), at + 'tensor 3: name: "a b": must be 1 to 127 letters'),
                ("[]", at + "must be an object"), ("{\n'a'}", f"{self.profile}:2: not JSON: ")):
            with self.subTest(why=why):
                self.write(profile)
                self.refused(self.call(), why)

    def test_words_refused(self):
        for words, why in ((["--comm", "nonesuch"], "unknown strategy 'nonesuch'"),
                           (["--compress", "auto"], "name a codec"), (["--speed", "0"], "speed=0"),
                           (["--compress", "qsgd;*.bais=none"], "no tensor has such a name: there are a.weight, a.bias"),
                           (["--nonesuch"], "unknown option"), ([self.profile], "2 profiles: give one"),
                           (["--check", "--comm", "powersgd", "--compress", "fp16"], "strategy powersgd")):
            with self.subTest(why=why):
                self.refused(self.call(*words), why)

    def test_rules_by_name(self):
        """Exact biases take 40 floats more bytes on each of two ranks; both ways name the same tensors."""
        sent = {words: self.replay("--compress", words, "--steps", "2", "--speed", "100")[0]["results"]["wire_bytes"]
                for words in ("fp16", "fp16;*.bias=none", "none;?.weight=fp16")}
        self.assertEqual(sent["fp16;*.bias=none"], sent["none;?.weight=fp16"])
        self.assertEqual(sent["fp16;*.bias=none"] - sent["fp16"], 2 * 2 * 40 * 2)

    def test_check(self):
        self.assertEqual(gwrun.quiet(self.call("--check", "--trace", "--comm", "sharded")), "")
        self.assertFalse(os.path.exists(self.out))


class Shipped(unittest.TestCase):
    """The profiles that come with gradwire."""

    COUNTS = {"resnet18": (11681832, 62), "resnet50": (25557032, 161), "bert-large": (335141888, 391),
              "gpt2-124m": (124439808, 148)}
    CUTS = {"resnet18": (9, 65536, 8192), "resnet50": (17, 200704, 100352), "bert-large": (25, 131072, 131072),
            "gpt2-124m": (13, 195840, 195840)}  # places, and what passes at the first and the last

    def test_each_can_be_played(self):
        paths = [path for path in glob.glob(os.path.join(FOLDER, "*.json")) if not path.endswith(".schema.json")]
        self.assertEqual({os.path.basename(path)[:-5] for path in paths}, set(self.COUNTS))
        for path in paths:
            gwrun.clean(1, "replay", path, "--check", "--out", "run")
            tensors = gwrun.read_json(path)["tensors"]
            sizes = [math.prod(tensor["shape"]) for tensor in tensors]
            self.assertEqual((sum(sizes), len(sizes)), self.COUNTS[os.path.basename(path)[:-5]])
            passes = [tensor["activation"] for tensor in tensors if "activation" in tensor]
            self.assertEqual((len(passes), passes[0], passes[-1]), self.CUTS[os.path.basename(path)[:-5]])
            sums = [[t[key] for t in tensors if key in t] for key in ("forward_sum", "backward_sum")]
            layers = len(passes) - 1 if "resnet" not in path else 0  # each has two sums forward and two backward
            self.assertEqual(sums, [passes[:1] * (2 * layers + bool(layers)), passes[:1] * 2 * layers])

    def test_the_schema_has_the_same_keys(self):
        schema = gwrun.read_json(FOLDER, "profile.schema.json")
        of_tensor = schema["properties"]["tensors"]["items"]
        self.assertEqual(set(schema["required"]), set(PROFILE))
        self.assertEqual(set(schema["properties"]), {*PROFILE, "steps"})
        self.assertEqual(set(of_tensor["required"]), set(TENSOR))
        self.assertEqual(set(of_tensor["properties"]), {*TENSOR, "activation", "shard", "forward_sum", "forward_gather", "backward_sum",
                                                    "input_parts"})
