"""The bound of a step: measuring it beside a run does not change the run, and it follows from its
parts."""

import json

import gwrun

SMALL = ("--data", "synthetic:samples=2000,features=64,classes=5", "--layers", "32,32",
         "--momentum", "0.9", "--steps", 12, "--overhead", 0, "--overwrite")

# What a session's mode is, and what of the update a rank of two does.
MODES = [
    (("--comm", "allreduce"), "blocking", 1),
    (("--comm", "iallreduce:bucket=4K"), "eager", 1),
    (("--comm", "iallreduce:bucket=4K,progress=thread", "--update", "lazy"), "lazy", 1),
    (("--comm", "iallreduce:algo=sra,order=priority", "--update", "lazy"), "priority", 1),
    (("--comm", "sparse", "--compress", "topk:ratio=0.1"), "eager", 1),
    (("--comm", "sharded", "--update", "lazy"), "sharded", 0.5),
    (("--comm", "sharded"), "blocking", 0.5),
    (("--comm", "delayed:bucket=4K"), "delayed", 1),
]


class Bound(gwrun.Case):

    def test_modes(self):
        for words, mode, share in MODES:
            with self.subTest(words=words):
                alone = gwrun.train(2, self.out, *SMALL, *words)
                self.assertIsNone(alone["bound"])
                run = gwrun.train(2, self.out, *SMALL, "--bound", *words)
                for key in ("replica_hash", "wire_bytes", "traffic"):
                    self.assertEqual(run["results"][key], alone["results"][key], key)
                self.check(run["bound"], mode, share)

    def check(self, bound, mode, share):
        local, modes = bound["local"], bound["modes"]
        self.assertEqual(bound["mode"], mode)
        self.assertEqual(bound["bound_s"], modes[mode])
        self.assertAlmostEqual(bound["update_share"], share, delta=0.01)
        self.assertGreater(bound["wire_s"], 0)
        computation = sum(local.values()) + bound["codec_s"]
        self.assertAlmostEqual(bound["computation_s"], computation, delta=1e-9)
        computation -= (1 - bound["update_share"]) * local["update_s"]
        near = 0.01 * (computation + bound["wire_s"])  # played in parts
        self.assertAlmostEqual(modes["blocking"], computation + bound["wire_s"], delta=near)
        least = max(computation + (bound["transport_s"] or 0), bound["wire_s"])
        self.assertAlmostEqual(modes["delayed"], least, delta=near)
        for name in ("eager", "lazy", "priority", "sharded"):
            self.assertGreaterEqual(modes[name], least - near, name)
        self.assertLessEqual(modes["priority"], modes["lazy"] + near)
        self.assertLessEqual(modes["lazy"], modes["eager"] + near)

    def show(self, *words):
        return gwrun.ok(0, "show", self.out, *words).stdout

    def test_show(self):
        gwrun.train(2, self.out, *SMALL, "--comm", "iallreduce")
        self.assertIn("bound of a step: absent (train --bound measures it)", self.show())
        self.assertIsNone(json.loads(self.show("--json"))["runs"][0]["step_over_bound"])
        run = gwrun.train(2, self.out, *SMALL, "--comm", "iallreduce", "--bound")
        self.assertRegex(self.show(), r"bound of a step \(eager\): [\d.]+ us, of computation .*; "
                                      r"the step takes [\d.]+ times that")
        shown = json.loads(self.show("--json"))["runs"][0]
        bound = run["bound"]["bound_s"]
        self.assertAlmostEqual(shown["bound_s"], bound, delta=1e-6 * bound)
        self.assertAlmostEqual(shown["step_over_bound"], shown["step_s"] / shown["bound_s"],
                               delta=1e-6 * shown["step_over_bound"])

    def test_refused(self):
        for comm in ("local", "gossip", "ps"):
            gwrun.refusal(gwrun.run(2, "train", *SMALL, "--bound", "--comm", comm), f"--comm {comm}")

    def test_benchmarks(self):
        path = self.path("bench.json")
        gwrun.ok(2, "bench", "step", "--layers", "32", "--steps", 4, "--configs",
                 "allreduce;delayed;gossip;local", "--json", path)
        told = gwrun.read_json(path)
        self.assertEqual([row["bound"] and row["bound"]["mode"] for row in told["results"]],
                         ["blocking", "delayed", None])
        self.assertIn("counts whole periods", told["refused"][0]["reason"])  # local
        gwrun.ok(2, "bench", "overlap", "--sizes", "4K", "--algos", "sra", "--progress",
                 "poll", "--repeats", 2, "--json", path)
        row = gwrun.read_json(path)["results"][0]
        if row["bound_s"] is None:  # a busy machine: the transport took longer than the exchange
            self.assertIsNone(row["transport_s"])
        else:
            least = max(row["comp_s"] + (row["transport_s"] or 0), row["comm_s"])
            self.assertAlmostEqual(row["bound_s"], least, delta=1e-6 * least)
