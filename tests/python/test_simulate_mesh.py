"""`gradwire simulate --mesh`: what it prints, its JSON and its folder, and what it refuses."""

import json
import os

import gwrun
from test_simulate import loggp, parse

LINK = ("--link", "8gbit,20us,2us")
LAYERS, BATCH, FLOATS, PASSES = 8, 8, 20000, 3000  # of each layer, and of a sample


def profile(**more):
    """Layers of 8 ms forward and 16 back."""
    return {"schema": 1, "model": "eight layers", "source": "a test", "device": "a device", "machine": "a machine",
            "date": "2026-11-28", "torch": None, "threads": 1, "batch": BATCH, "optimizer_s": 0.0,
            "tensors": [{"name": f"layer{i}", "shape": [FLOATS], "group": i, "forward_s": 0.008, "backward_s": 0.016,
                         "std": 1, **more} for i in range(LAYERS)]}


class SimulateMesh(gwrun.Case):
    def setUp(self):
        super().setUp()
        self.profile = self.path("profile.json")
        gwrun.write(self.profile, json.dumps(profile(activation=PASSES, shard=0, forward_sum=PASSES)))

    def words(self, *words, ranks=8):
        return ("simulate", "--ranks", ranks, *LINK, "--profile", self.profile, "--comm", "allreduce:algo=ring", *words)

    def simulate(self, *words, ranks=8):
        done = gwrun.clean(0, *self.words("--json", self.path("f.json"), *words, ranks=ranks))
        return gwrun.read_json(self.path("f.json")), done.stdout

    def test_figures(self):
        """Where hops take hardly any time, the bubble is the formula's; it is printed, and in the JSON."""
        run, said = self.simulate("--mesh", "data=2,pipe=4", "--microbatches", "8", "--timetable", "gpipe")
        bubble_s = 3 * (LAYERS / 4 * 0.024 - 0.008) / 8  # (p-1)(F+B), but deltas leave earlier by half of a layer's B
        self.assertAlmostEqual(run["bubble_s"], bubble_s, delta=0.05 * bubble_s)
        self.assertEqual(run["mesh"], {"data": 2, "pipe": 4, "tensor": 1, "timetable": "gpipe", "microbatches": 8,
                                       "chunks": 1, "layers": [2, 2, 2, 2], "tensor_algorithm": None,
                                       "tensor_chunks": 1})
        hops = 2 * 3 * 2 * 4 * PASSES * BATCH  # replicas, boundaries, ways, bytes
        sums = 2 * 4 * FLOATS * LAYERS
        self.assertEqual(run["wire_bytes"], (hops + sums) / 8)
        self.assertIn(f"mesh: data=2, pipe=4, tensor=1: 8 microbatches by gpipe; bubble {1e3 * run['bubble_s']:.6g} ms", said)
        alone, said = self.simulate("--mesh", "data=8")
        plain, _ = self.simulate()
        self.assertEqual([alone[key] for key in ("step_s", "events", "mesh", "bubble_s")],
                         [plain["step_s"], plain["events"], None, 0])
        self.assertNotIn("mesh:", said)
        _, said = self.simulate("--mesh", "pipe=4", "--comm", "allreduce", ranks=4)
        self.assertEqual([line for line in said.splitlines() if line.startswith("note: ")],
                         ["note: --comm allreduce: nothing is exchanged: there is 1 replica"])  # and native stands for nothing

    def test_local_batch(self):
        """Twice the samples take twice as long, and pass twice the bytes."""
        words = ("--mesh", "pipe=4", "--microbatches", "8")
        one, _ = self.simulate(*words, ranks=4)
        two, _ = self.simulate(*words, "--local-batch", 2 * BATCH, ranks=4)
        self.assertEqual((two["wire_bytes"], two["step"]["batch"]), (2 * one["wire_bytes"], 2 * BATCH))
        self.assertAlmostEqual(two["step_s"] - two["exposed_s"], 2 * (one["step_s"] - one["exposed_s"]), delta=1e-6)

    def test_goal(self):
        """Another engine, which reads what the ranks did, finds the same step."""
        path = self.path("f.goal")
        for mesh, timetable in (("pipe=4", "interleaved"), ("data=2,pipe=2", "zb"), ("tensor=2,pipe=2", "1f1b")):
            run, _ = self.simulate("--mesh", mesh, "--microbatches", "8", "--timetable", timetable, "--steps", "1",
                                   "--compute", "spin", "--goal", path, ranks=4)
            self.assertAlmostEqual(loggp(parse(gwrun.read(path))) * 1e-9, run["step_s"], delta=1e-3 * run["step_s"])

    def test_trained(self):
        """Tensor ranks send what those of a real run do, layers of uneven parts included."""
        words = ("--comm", "allreduce:algo=ring", "--tensor-algo", "ring")
        for split, hidden, mesh, more in (("pairs", "48,40", "tensor=3", ("--tensor-chunks", "2")),
                                          ("pairs", "64,32,48", "pipe=2,tensor=2", ("--microbatches", "4")),
                                          ("columns", "40", "data=2,tensor=2", ("--microbatches", "2", "--tensor-chunks", "3")),
                                          ("columns", "100,70,30", "tensor=3", ()),
                                          ("columns", "64,32,48", "pipe=2,tensor=2", ("--microbatches", "4"))):
            ranks = 3 if mesh == "tensor=3" else 4
            here, model = ("--mesh", mesh, *words, *more), ("--layers", hidden, "--batch", "24", "--tensor-split", split)
            gwrun.clean(0, "bench", "layers", *model, "--steps", "3", "--profile", self.profile)
            run = gwrun.train(ranks, self.out, *model, "--steps", "2", "--overwrite", *here)
            one, _ = self.simulate("--local-batch", 12 if "data" in mesh else 24, *here, ranks=ranks)
            self.assertEqual((one["wire_bytes"], one["mesh"]["tensor_algorithm"]),
                             (run["results"]["summary"]["wire_bytes"], "ring"), (split, mesh))

    def test_shipped_profiles(self):
        """Each says where it can be cut, and two what tensor ranks divide."""
        for name, meshes in (("gpt2-124m", ("tensor=8", "pipe=3,tensor=4")), ("bert-large", ("tensor=16",))):
            for mesh in meshes:
                gwrun.clean(0, *self.words("--profile", os.path.join(gwrun.SOURCE, "profiles", f"{name}.json"), "--mesh", mesh,
                                           "--check", ranks=48))
        for name, stages in (("gpt2-124m", 12), ("bert-large", 24), ("resnet18", 8), ("resnet50", 16)):
            path = os.path.join(gwrun.SOURCE, "profiles", f"{name}.json")
            gwrun.clean(0, *self.words("--profile", path, "--mesh", f"pipe={stages}", "--microbatches", "8", "--local-batch",
                                       "8", "--check", ranks=stages))

    def test_folder(self):
        """Columns of the mesh, whose waiting along the pipe is the bubble, and the figures that the tools read."""
        gwrun.clean(0, *self.words("--mesh", "tensor=2,pipe=4,data=2", "--microbatches", "8", "--out",
                                   self.out, ranks=16))
        run, rows = gwrun.run_json(self.out), gwrun.batches(self.out)
        dimensions = run["results"]["summary"]["dimensions"]
        self.assertEqual([dimensions[name]["ranks"] for name in ("data", "pipe", "tensor")], [2, 4, 2])
        self.assertEqual([(row["replica"], row["stage"], row["shard"]) for row in (*rows[:3], rows[8])],
                         [("0", "0", "0"), ("1", "0", "0"), ("0", "1", "0"), ("0", "0", "1")])
        summary = run["results"]["summary"]
        late = [row for row in rows if row["step"] != "1"]
        self.assertAlmostEqual(summary["bubble_s"], sum(float(row["pipe_skew_s"]) for row in late) / len(late), delta=1e-9)
        self.assertEqual(summary["logical_bytes"], sum(int(row["logical_bytes"]) for row in rows) / len(rows))
        for row in rows:
            for figure, whole in (("bytes", "wire_bytes"), ("comm_s", "mpi_wait_s")):
                parts = [float(row[f"{dimension}_{figure}"]) for dimension in ("data", "pipe", "tensor")]
                self.assertAlmostEqual(sum(parts), float(row[whole]), delta=1e-9)
                self.assertGreater(min(parts), 0)
            self.assertLessEqual(float(row["pipe_skew_s"]), float(row["pipe_comm_s"]) + 1e-9)
        for tool in "show", "table":
            self.assertIn("bubble", gwrun.clean(0, tool, self.out).stdout, tool)
        gwrun.clean(0, "report", os.path.dirname(self.out))

    def test_refusals(self):
        """The words of `train`, and of a profile."""
        def refused(says, *words, ranks=8):
            gwrun.refusal(gwrun.run(0, *self.words(*words, ranks=ranks)), says)

        refused("--mesh pipe=3 takes a multiple of 3 ranks, and there are 8", "--mesh", "pipe=3")
        refused("--mesh data=3,pipe=2 takes 6 ranks, and there are 8", "--mesh", "data=3,pipe=2")
        refused("unknown dimension 'pip'", "--mesh", "pip=2")
        refused("--mesh pipe=16: the model has 8 layers, each chunk needs one: at most pipe=8", "--mesh", "pipe=16",
                ranks=16)
        refused("--microbatches 16: a replica takes 8 samples a step", "--mesh", "pipe=2", "--microbatches", "16")
        refused("simulate: --timetable: a batch passes at once: give --microbatches, or add pipe to --mesh",
                "--timetable", "gpipe")
        refused("--timetable interleaved: one stage has nothing to interleave: add pipe to --mesh", "--microbatches", "8",
                "--timetable", "interleaved")
        refused("--timetable interleaved: 6 microbatches on 4 stages: give a multiple of 4", "--mesh", "pipe=4",
                "--microbatches", "6", "--timetable", "interleaved")
        refused("simulate: --tensor-chunks: no layer is cut: add tensor to --mesh", "--tensor-chunks", "2")
        refused("simulate: --tensor-algo auto may work in memory that ranks share", "--mesh", "tensor=2", "--tensor-algo", "auto")
        refused("ps: dedicated=1 keeps the only rank, or replica, from training", "--mesh", "pipe=8", "--comm", "ps:dedicated=1")
        gwrun.refusal(gwrun.run(0, "simulate", "--ranks", 4, *LINK, "--bytes", "4", "--local-batch", "8"), "local-batch")
        gwrun.write(self.profile, json.dumps(profile()))
        refused("simulate: --mesh pipe=2: the profile of eight layers does not say what passes from layer to layer",
                "--mesh", "pipe=2")
        refused("simulate: --mesh tensor=2: the profile of eight layers does not say what tensor ranks divide",
                "--mesh", "tensor=2")
