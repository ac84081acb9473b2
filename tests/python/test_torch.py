"""gradwire.torch against DistributedDataParallel by Gloo: the hook, Session, what is refused.

The interpreter is $TORCH_PYTHON, else the suite's own."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

import gwrun
from test_python import every_strategy, launch, results

HERE = os.path.dirname(os.path.abspath(__file__))
RANK = os.path.join(HERE, "torch_rank.py")
STATES = os.path.join(HERE, "torch_state_rank.py")
CHANGES = os.path.join(HERE, "torch_change_rank.py")
PYTHON = os.environ.get("TORCH_PYTHON", sys.executable)
ROUNDING = 1e-5


def torch_version():
    done = subprocess.run([PYTHON, "-c", "import torch; print(torch.__version__)"], text=True,
                          capture_output=True, check=False)
    return tuple(map(int, done.stdout.split(".")[:2])) if done.returncode == 0 else None


VERSION = None if gwrun.cached("GW_SANITIZE") else torch_version()
NONE = f"{PYTHON} cannot import torch, or a sanitizer's runtime would have to be preloaded"
OLD = "gradwire.torch.{} needs PyTorch 2.1"


def told(ranks, *words, script=RANK):
    """What each rank found, in the order of ranks."""
    found = {line["rank"]: line["result"] for line in results(ranks, script, *words, python=PYTHON)}
    assert sorted(found) == list(range(ranks)), found
    return [found[rank] for rank in range(ranks)]


class EitherWay:
    """Of State, of the hook and of Session: `way` says which, `closure_refused` what it says to a closure of
    LBFGS."""

    def test_not_finite(self):
        """A gradient that is not finite on one rank: no rank moves, residuals and factors are as before, and
        a GradScaler finds it on all, lowers its scale and goes on."""
        exchanges = ["allreduce", "iallreduce --compress onebit", "powersgd", "sparse --compress topk",
                     "sparse --compress topk --momentum 0.9 --error-feedback dgc", "delayed"]
        exchanges += ["ps", "sharded --compress topk"] if self.way == "session" else []
        jobs = [[self.way, f"--comm {words}"] for words in exchanges]
        one, two = told(2, "left_out", json.dumps(jobs), script=CHANGES)
        for words, a, b in zip(exchanges, one, two):
            with self.subTest(words=words):
                for found in (a, b):
                    late = words == "delayed"  # gradients are of other parameters, then
                    self.assertEqual(found["same"], not late, "as without the batch")
                    self.assertEqual(found["seen"]["left_out"], [number == 1 + late for number in range(5)])
                    for seen in (found["seen"], found["scaled"]):
                        self.assertTrue(seen["finite"])
                        self.assertEqual(seen["moved"], [number != 1 + late and number + 1 > late
                                                         for number in range(5)])
                    self.assertEqual(found["scaled"]["scale"], 512)
                self.assertEqual((a["hash"], a["scaled hash"]), (b["hash"], b["scaled hash"]))

    def test_a_model_that_changes(self):
        one, two = told(2, "changes", self.way, script=CHANGES)
        for found in (one, two):
            if self.way == "hook":
                self.assertIn("0.weight is frozen by now: DistributedDataParallel needs", found["plain frozen"])
            self.assertFalse(found["frozen moves"])
            self.assertTrue(found["others move"])
            self.assertIn("0.bias requires a gradient, and did not when", found["unfrozen"])
            self.assertIn("2.weight requires a gradient, and did not when", found["added"])
            self.assertIn("1.weight requires a gradient, and did not when", found["replaced"])
        for key in ("frozen", "tied"):
            self.assertEqual(one[key], two[key], key)

    def test_what_is_not_trained(self):
        """Is alike on all ranks from the opening on; then statistics are each rank's. Parameters without elements are
        left out."""
        one, two = told(2, "untrained", self.way, script=CHANGES)
        self.assertEqual(one["trained"], two["trained"])
        self.assertNotEqual(one["statistics"], two["statistics"])
        if self.way == "session":
            self.assertEqual(one["opened"], two["opened"])
            for found in (one, two):
                for key, part in {"shapes": "buffers differ in names, types or shapes", "sparse": "more is sparse:",
                                  "meta": "more is on meta", "lazy": "weight is not initialized"}.items():
                    self.assertIn(part, found[key])

    def test_phases(self):
        """Are those of the model and of optimizer.step; what the program does between them is none of them."""
        for found in told(2, "phases", self.way, script=CHANGES):
            for closes, seen in zip((False, True), found):
                self.assertGreaterEqual(seen.pop("other_s"), 0.1 if closes else 0.2)
                self.assertGreater(min(seen.values()), 0, seen)

    def test_closures(self):
        one, two = told(2, "closures", self.way, script=CHANGES)
        self.assertEqual(len({found[key] for found in (one, two) for key in ("plain", "closure")}), 1)
        for found in (one, two):
            if self.closure_refused:
                self.assertIn("(LBFGS)", found["lbfgs"])
                self.assertIn(self.closure_refused, found["lbfgs"])
            else:
                self.assertEqual(found["lbfgs"], one["by Gloo"])

    def test_cancelled_and_closed(self):
        one, two = told(2, "cancel", self.way, script=CHANGES)
        self.assertEqual(len({found[who] for found in (one, two) for who in ("nobody", "all", "one")}), 1)
        for found in (one, two):
            self.assertTrue(found["left out"])
            self.assertIn("no batch is open", found["idle"])
            self.assertIn("use --update eager", found["lazy"])
            self.assertTrue(found["goes on"])
        if self.way != "session":  # averaged by DistributedDataParallel itself
            self.assertEqual(one["after"], two["after"])


@unittest.skipIf(VERSION is None, NONE)
class Hook(EitherWay, unittest.TestCase):
    way, closure_refused = "hook", "belongs into the closure alone"

    def test_exact_is_gloo(self):
        """Also with static_graph, whose buckets have one index at first and are rebuilt then, with
        parameters that one rank or both leave out, and with buckets of 0.1 MB. In shared memory
        gradients are summed in the buckets themselves."""
        jobs = [["resnet", "plain", "--comm allreduce"], ["gpt", "plain", "--comm iallreduce"],
                ["gpt", "static", "--comm allreduce"], ["halves", "unused", "--comm iallreduce"],
                ["gpt", "plain", "--comm sparse --compress topk:ratio=1"],
                ["resnet", "plain", "--comm allreduce:algo=shm"],
                ["gpt", "static", "--comm iallreduce:algo=shm,bucket=64K"],
                ["halves", "unused", "--comm allreduce:algo=shm"]]
        one, two = told(2, "hook", json.dumps(jobs))
        for job, a, b in zip(jobs, one, two):
            with self.subTest(job=job):
                self.assertEqual(a["hash"], b["hash"], "replicas differ")
                self.assertLess(a["apart"], ROUNDING)
                self.assertEqual(a["in place"], "algo=shm" in job[2])

    def test_copies_where_a_rank_cannot_share(self):
        other = "lent memory: a rank had none to lend"
        for found, whys in zip(told(2, "cramped"), ((other, other),
                                                    ("/dev/shm has 4096 bytes left", "unable to allocate"))):
            for case, why in zip(found, whys, strict=True):
                self.assertLess(case["apart"], ROUNDING)
                self.assertFalse(case["in place"])
                self.assertEqual(len(case["said"]), 1)
                self.assertIn(f"gradients are copied: {why}", case["said"][0])

    def test_others_agree(self):
        jobs = [["gpt", "plain", f"--comm {words}"] for words in
                ("powersgd", "delayed", "sparse --compress topk", "iallreduce --compress qsgd:bits=4")]
        one, two = told(2, "hook", json.dumps(jobs))
        for job, a, b in zip(jobs, one, two):
            with self.subTest(job=job):
                self.assertEqual(a["hash"], b["hash"], "replicas differ")
                self.assertGreater(a["apart"], ROUNDING)  # so the comparison can fail

    def test_resumes_to_the_bit(self):
        jobs = [["hook", f"--comm {words}"] for words in
                ("allreduce", "powersgd", "delayed", "sparse --compress topk",
                 "iallreduce --compress qsgd:bits=4 --error-feedback on")]
        self.assertEqual(told(2, "resume", json.dumps(jobs)), [[True] * len(jobs)] * 2)

    def test_an_exception_ends_the_job(self):
        for case, said in ("broken", "in the hook"), ("lonely", "only here"):
            done = launch(2, RANK, case, python=PYTHON)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(f"ValueError: {said}", done.stderr)


@unittest.skipIf(VERSION is None, NONE)
class Old(unittest.TestCase):
    @unittest.skipIf(VERSION and VERSION >= (2, 1), "this PyTorch has what Session needs")
    def test_says_what_it_needs(self):
        for found in told(1, "refusals"):
            for name, key in ("Session", "gpu"), ("State", "state"):
                self.assertIn(OLD.format(name), found[key])


@unittest.skipIf(VERSION is None or VERSION < (2, 1), NONE if VERSION is None else OLD.format("Session"))
class State(EitherWay, unittest.TestCase):
    way, closure_refused = "state", None

    def test_loops_of_others(self):
        """Exact exchanges are Gloo's, to rounding, whatever the loop: it knows nothing of gradwire."""
        jobs = [["resnet", "plain", "plain", "--comm allreduce"],
                ["gpt", "static", "plain", "--comm iallreduce"],
                ["gpt", "plain", "accumulating", "--comm iallreduce"],
                ["halves", "unused", "plain", "--comm iallreduce"],
                ["gpt", "plain", "plain", ""],
                ["gpt", "plain", "evaluating", "--comm allreduce"],
                ["gpt", "plain", "two_optimizers", "--comm iallreduce"],
                ["gpt", "plain", "plain", "--comm sparse --compress topk"]]
        one, two = told(2, "loops", json.dumps(jobs), script=STATES)
        for job, a, b in zip(jobs, one, two):
            with self.subTest(job=job):
                self.assertEqual(a["hash"], b["hash"], "replicas differ")
                if job[3].endswith("topk"):
                    self.assertGreater(a["apart"], ROUNDING)  # so the comparison can fail
                else:
                    self.assertLess(a["apart"], ROUNDING)
                self.assertEqual(a["in place"], job[3] == "")

    def test_exchange_that_nobody_names(self):
        """Of ranks that share a host, of others, with a codec; a study may name it."""
        jobs = {("2", "", ""): ["allreduce", "shm", "none"], ("1", "--seed 3", ""): ["iallreduce", "hier", "none"],
                ("2", "", "--compress topk"): ["iallreduce", "gathersum", "topk"],
                ("2", "--compress fp16", ""): ["iallreduce", "native", "fp16"],
                ("2", "", "--comm allreduce"): ["allreduce", "native", "none"],
                ("1", "--comm=delayed", ""): ["delayed", "native", "none"]}
        for found in told(2, "exchange", json.dumps(list(jobs)), script=STATES):
            self.assertEqual(dict(zip(jobs, found)), jobs)

    def test_registered(self):
        for found in told(2, "registered", script=STATES):
            self.assertEqual((found["losses"], found["samples"], found["resumed"]), ([True] * 4, 2, True))
            for key, part in {"list": "words: list instead of a text", "misspelt": "did you mean 'compress'?",
                              "no mean": "--comm sharded does not hand out the mean", "nobody": "no models have registered it",
                              "idle": "loss: no batch is open", "pickled": "cannot be pickled",
                              "loads": "load: NoneType instead of the bytes",
                              "another's": "gradients of another model"}.items():
                self.assertIn(part, found[key])

    def test_several_models(self):
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "run")
            one, two = told(2, "models", out, script=STATES)
            run = gwrun.run_json(out)
            sent = {row["wire_bytes"] for row in gwrun.batches(out) if row["step"] == "3"}
        self.assertEqual(one, two)
        self.assertEqual(one["gloo"], one["exact"])
        self.assertNotEqual(one["gloo"], one["lossy"])
        self.assertIn("2 models have registered it", one["refused"])
        self.assertEqual(run["others"], 1)
        self.assertTrue(sent and "0" not in sent, sent)

    def test_a_run_that_nobody_closes(self):
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "run")
            for found in told(2, "folder", out, script=STATES):
                self.assertIn("State(words, ddp) names it", found["early"][0])
                self.assertIn("they would wait for this one", found["early"][1])
                self.assertEqual(found["early"][2:], [False, True])
                self.assertEqual(found["means"], [1.5, [1, 1]])
            rows = gwrun.batches(out)
            self.assertEqual(gwrun.run_json(out)["results"]["steps"], 8)
        self.assertEqual([row["step"] for row in rows if row["rank"] == "0"], [str(n + 1) for n in range(8)])
        for row in rows[2:]:  # the first one begins with the first bucket
            for column in ("forward_s", "backward_s", "update_s", "samples"):
                self.assertGreater(float(row[column]), 0, column)

    def test_a_fault_stops_all(self):
        done = launch(2, STATES, "stops", python=PYTHON)
        self.assertEqual(done.returncode, 1)
        lines = [line for line in done.stderr.splitlines() if line.startswith("gradwire.library.Error")]
        self.assertEqual(len(lines), 1, done.stderr)
        self.assertIn("--on-nan skip", lines[0])

    def test_a_rank_that_ends_early(self):
        """The others wait for it in PyTorch, of which the library sees nothing."""
        for way, left, status, said in (("state", "0", None, "(?s)gradwire: rank 1: the program has ended, and waits for other "
                                         "ranks.*rank 1 .*: no progress for 12.*: in gradwire_leave"),
                                        ("shards", "no data", 1, "(?s)no data\n.*rank 1: ends with exit status 1, and others"),
                                        ("session", "3", 3, "rank 1: ends with exit status 3, and others do not end")):
            with self.subTest(way=way):
                done = launch(2, STATES, "leaves", way, left, "--hang-timeout 12" if status is None else "", python=PYTHON)
                self.assertRegex(done.stderr, said)
                self.assertNotEqual(done.returncode, 0)
                if status is not None:
                    self.assertEqual(done.returncode, status)
                    self.assertEqual(done.stderr.count("gradwire: rank"), 1, done.stderr)

    def test_children(self):
        with tempfile.TemporaryDirectory() as folder:
            one, two = told(2, "forks", os.path.join(folder, "run"), script=STATES)
            self.assertEqual(gwrun.run_json(folder, "run")["results"]["steps"], 8)
        self.assertEqual((one["ended"], one), (0, two))

    def test_narrow_gradients_and_layouts(self):
        """Sums are float32's, rounded once; --compress says what is on the wire."""
        for found in told(2, "narrow", script=STATES):
            self.assertIn("lie in memory in different orders", found.pop("layouts"))
            self.assertIn("differ", found.pop("fault"))
            for name, of in found.items():
                with self.subTest(name=name):
                    self.assertTrue(all(of["strides"]))
                    if name.startswith("narrow wire"):
                        self.assertLess(of["apart"], 0.01)
                    else:
                        self.assertTrue(of["same"])
            for way in "state", "session":
                self.assertEqual(found[f"bfloat16 {way}"]["wire"], found[f"plain {way}"]["wire"])
                self.assertAlmostEqual(found[f"narrow wire {way}"]["wire"] / found[f"plain {way}"]["wire"], 0.5, 2)

    def test_shards(self):
        """The reduce-scatter of fully_shard: with `sharded` the bytes of one, and the bits of Gloo's."""
        for found in told(2, "shards", script=STATES):
            runs = {words: of for words, of in found.items() if words.startswith("--comm")}
            self.assertEqual(len(runs), 4)
            for words, of in runs.items():
                lossy, times = "qsgd" in words, 1 if "sharded" in words else 2
                self.assertEqual((of["apart"] > ROUNDING, of["gloo"], of["step"]), (lossy, not lossy, 6), words)
                if lossy:
                    self.assertLess(of["wire"], 4 * of["floats"] // 2 * times / 2)
                else:
                    self.assertEqual(of["wire"], 4 * of["floats"] // 2 * times, words)
            self.assertGreater(found["trains on"], ROUNDING)
            left = {words: same for words, same in found.items() if words.startswith("left out")}
            self.assertEqual(list(left.values()), [[True, True]] * 2, left)
            self.assertTrue(found["together"])
            for key, part in {"whole": "Sequential is not cut up: call fully_shard", "ps": "--comm ps exchanges parameters",
                              "directs": "--comm dion does not hand out the mean", "clips": "before the whole norm is known", "compares": "there are no replicas to compare",
                              "narrow": "parameters of torch.bfloat16: Shards takes float32",
                              "there": "gradients of an earlier backward pass are there", "epoch": "no replicas",
                              "twice": "has Shards already", "early": "0.weight has a hook that takes its gradient within",
                              "mesh": "the model is cut up over a mesh of (2, 1)", "reduced": "set_all_reduce_hook is not"}.items():
                self.assertIn(part, found[key])

    def test_of_another_device(self):
        """A fake one, whose copies arrive late."""
        one, two = told(2, "device", "--comm iallreduce", script=STATES)
        for found, other in (one, two), (two, one):
            for way in "state", "session":
                self.assertLess(found[way][0], ROUNDING)
                self.assertEqual(found[way][1:], [other[way][1], False])
            self.assertEqual(found["waited"], [True, True])
            self.assertFalse(found["threads"])
            self.assertIn("on cuda: gradwire.torch.State(words, ddp) has to know it", found["elsewhere"])
            self.assertIn("--comm sharded hands parameters around", found["sharded"])


@unittest.skipIf(VERSION is None or VERSION < (2, 1), NONE if VERSION is None else OLD.format("Session"))
class Session(EitherWay, unittest.TestCase):
    way, closure_refused = "session", "second one in it"

    def test_every_strategy(self):
        jobs = [["gpt", words] for words in every_strategy()]
        jobs += [["resnet", "--comm sharded"], ["halves", "--comm iallreduce"],
                 ["halves", "--comm sharded"], ["gpt", "--comm sharded --update lazy"]]
        one, two = told(2, "sessions", json.dumps(jobs))
        for (model, words), a, b in zip(jobs, one, two):
            with self.subTest(model=model, words=words):
                name = words.split()[1]
                self.assertEqual(a["hash"], b["hash"], "replicas differ")
                if name in ("ps", "sharded"):
                    self.assertEqual(a["owned"] + b["owned"], a["all"])
                else:
                    self.assertEqual(a["owned"], a["all"])
                # Without a gradient on any rank Gloo's optimizer skips a parameter, and here one of
                # zero moves it by its momentum.
                if name in ("allreduce", "iallreduce", "ps", "sharded", "sparse") and model != "halves":
                    self.assertLess(a["apart"], ROUNDING)

    def test_resumes_to_the_bit(self):
        jobs = [["session", f"--comm {words}"] for words in
                ("sharded --compress onebit", "local:period=3", "gossip:topology=exponential",
                 "delayed", "ps")]
        self.assertEqual(told(2, "resume", json.dumps(jobs)), [[True] * len(jobs)] * 2)

    def test_a_rank_that_only_serves(self):
        server, worker = told(2, "serves", script=CHANGES)
        for found in (server, worker):
            self.assertIn("within `with session.batch(0)`", found["refused"])
            self.assertIn("give total", found["no total"])
            self.assertIn("belongs into `with session.batch(n)`", found["outside"])
            for a, b in zip(found["--comm ps:dedicated=1"], server["--comm allreduce"], strict=True):
                self.assertAlmostEqual(a, b, places=6)
        self.assertTrue(server["serves"])
        self.assertFalse(worker["serves"])

    def test_accumulates(self):
        one, two = told(2, "accumulate")
        self.assertEqual(len({*one.values(), *two.values()}), 1)

    def test_refusals(self):
        for ranks in (1, 2):
            for found in told(ranks, "refusals"):
                for key, part in {
                        "bare": "Linear is no DistributedDataParallel", "gpu": "weight is on meta",
                        "double": "weight is torch.float64", "double session": "weight is torch.float64",
                        "sparse": "makes sparse gradients", "frozen": "no parameter that requires",
                        "strided": "weight has strides (8, 2)", "ps": "--comm ps does not hand out",
                        "sharded": "--comm sharded does", "local": "--comm local does",
                        "gossip": "--comm gossip does", "words": "nosuch", "optimizer": "--optimizer sgd is for",
                        "gradient": "--gradient scaled is for", "parameters": "--parameters parts is for", "names": "'*.bias': no tensor has such a name: there are weight, bias",
                        "join": "join() is not",
                        "nested": "the one before it has not ended",
                        "no exchange": "no backward pass exchanged"}.items():
                    self.assertIsNotNone(found[key], key)
                    self.assertIn(part, found[key])
                    self.assertNotIn("\n", found[key])

    def test_directions(self):
        """Of a compressed optimizer: signs, which plain SGD alone applies."""
        for adam, momentum, decay, moved in told(2, "directs"):
            for said in adam, momentum:
                self.assertIn("demo hands out the direction of an update", said)
            self.assertIn("the weight decay of the steps since would be lost", decay)
            self.assertAlmostEqual(moved, 0.1, 6)

    def test_moved_parameters(self):
        for said, grouped in told(2, "moved"):
            self.assertIn("weight has moved in memory", said)
            self.assertFalse(grouped)
