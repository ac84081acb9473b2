"""A paced run sends, computes and ends with what the same run without --pace does, to the bit; its
rows add up to its times; and what makes no sense of slept time is refused or absent."""


import gwrun
import identities

SMALL = ("--data", "synthetic:samples=400,features=40", "--layers", "32,16", "--momentum", "0.9",
         "--epochs", 2, "--overwrite", "--save-model", "off")
# What a step does beside its exchange: residuals that gradients are added to, samples of the
# gradient, steps that could be left out, random codecs on an exchange that lasts into the next step,
# lists, a rank without samples, a straggler.
BESIDE = {"allreduce": ("--compress", "topk", "--error-feedback", "dgc"),
          "iallreduce": ("--compress", "topk", "--compress-stats", 2, "--on-nan", "skip"),
          "delayed:algo=sra,bucket=1K": ("--compress", "qsgd:bits=4", "--eval-every", 3),
          "ps:dedicated=1": ("--data-layout", "sharded"),
          "sharded": ("--inject-skew", "0:1ms"),
          "sparse": ("--compress", "topk:ratio=0.1", "--momentum", 0),
          "onebitadam:freeze=3": ("--compress", "onebit", "--momentum", 0, "--lr", 1e-4),
          "zerooneadam:freeze=2,double=2,local=2": ("--compress", "onebit", "--momentum", 0, "--lr", 1e-4,
                                                   "--on-nan", "skip"),
          "demo": ("--momentum", 0, "--lr", 1e-3),
          "dion:rank=2": ("--momentum", 0)}
# Whose steps exchange activations, too: every split, timetable and way to hold less, codecs with random
# numbers, and the exchanges of gradients that keep something or go on in the next step.
MESHES = ((1, "--microbatches", 3), (2, "--mesh", "tensor=2", "--tensor-chunks", 2),
          (2, "--mesh", "pipe=2", "--microbatches", 4, "--timetable", "zb", "--recompute", "on"),
          (2, "--mesh", "pipe=2", "--microbatches", 2, "--timetable", "interleaved", "--layers", "32,16,16"),
          (3, "--mesh", "pipe=3", "--microbatches", 2, "--timetable", "gpipe", "--on-nan", "skip"),
          (4, "--mesh", "tensor=4", "--tensor-split", "columns"),
          (4, "--mesh", "pipe=2,tensor=2", "--microbatches", 2, "--compress-activations", "qsgd"),
          (4, "--mesh", "data=2,tensor=2", "--comm", "iallreduce", "--compress", "topk"),
          (4, "--mesh", "data=2,pipe=2", "--microbatches", 2, "--comm", "delayed", "--inject-skew", "1:1ms"))
PLAIN = ("--ceilings", "off", "--papi-group", "none")


class Pace(gwrun.Case):

    def train(self, ranks, name, *words):
        return gwrun.train(ranks, self.path(name), *SMALL, *words)

    def pair(self, ranks, *words):
        with self.subTest(ranks=ranks, words=words):
            real = self.train(ranks, "real", *PLAIN, *words)
            paced = self.train(ranks, "paced", "--pace", "0.5", *words)
            self.assertIsNone(real["paced"])
            for key in ("replica_hash", "wire_bytes", "traffic", "train_loss", "test_loss"):
                self.assertEqual(paced["results"][key], real["results"][key], key)
            rows = [[(row["rank"], row["step"], row["samples"], row["loss"], row["logical_bytes"])
                     for row in gwrun.batches(self.path(name))] for name in ("real", "paced")]
            self.assertEqual(rows[0], rows[1])
            return paced

    def test_strategies(self):
        specs = {spec.split(":")[0]: (spec, *words) for spec, words in BESIDE.items()}
        for i, strategy in enumerate(gwrun.names("comm/strategies.def")):
            self.pair(2 + i % 3, "--comm", *specs.get(strategy, (strategy,)))

    def test_steps(self):
        self.pair(1)
        self.pair(2, "--comm", "iallreduce:progress=thread", "--compress", "topk")

    def test_meshes(self):
        for ranks, *words in MESHES:
            self.pair(ranks, *words)

    def test_naive(self):
        plain = ("--momentum", 0, "--backend")
        for ranks, backend in ((3, "naive:loops=batch"), (4, "naive:loops=sample,exchange=root")):
            run = self.pair(ranks, *plain, backend)
            for tape in run["paced"]["measured"]:
                self.assertTrue(tape["compute_s"] > 0 and tape["update_s"] > 0, tape)

    def test_resumed(self):
        whole = self.pair(2, "--comm", "delayed")
        self.train(2, "part", "--pace", "0.5", "--comm", "delayed", "--steps", 5,
                   "--checkpoint-every", 5)
        words = ("train", "--quiet", "--out", self.path("part"),
                 *(word for word in SMALL if word != "--overwrite"), "--comm", "delayed")
        gwrun.ok(2, *words, "--pace", "0.5", "--resume", "auto")
        results = gwrun.run_json(self.path("part"))["results"]
        self.assertEqual(results["replica_hash"], whole["results"]["replica_hash"])

    def test_run(self):
        run = self.train(3, "run", "--pace", "2", "--comm", "iallreduce")
        identities.leaves(self, self.path("run"), False)
        identities.waits(self, self.path("run"))
        identities.traffic(self, self.path("run"))
        paced, results = run["paced"], run["results"]
        self.assertEqual((paced["factor"], paced["arithmetic"]), (2, "outside the clock"))
        # 334 training samples: batches of 64 are 22, 21, 21, the last one of 14 is 5, 5, 4
        self.assertEqual([tape["batch"] for tape in paced["measured"]], [22, 21, 5, 4])
        for tape in paced["measured"]:
            self.assertEqual([len(tape["forward_s"]), len(tape["backward_s"])], [3, 3])
            times = [tape[key] for key in ("data_s", "loss_s", "update_s")]
            self.assertTrue(all(s > 0 for s in [*times, *tape["forward_s"], *tape["backward_s"]]))
        self.assertGreater(paced["outside_s"], 0)
        rows = [row for row in gwrun.batches(self.path("run")) if row["rank"] == "0"]
        walls = sum(float(row["wall_s"]) for row in rows)
        self.assertAlmostEqual(results["train_s"], walls, delta=1e-7 * walls)
        self.assertGreater(results["elapsed_s"], results["train_s"])
        # What was done outside the clock lies between the rows, and in no other figure.
        first, last = ([float(row[key]) for key in ("t_start_s", "wall_s")]
                       for row in (rows[0], rows[-1]))
        self.assertGreater(sum(last) - first[0], walls)
        for row in rows:
            self.assertEqual(row["interrupted"], "")
            self.assertEqual(row["source"], "")
        self.assertIsNone(run["ceilings"])
        self.assertIsNone(run["overhead"])
        self.assertIsNone(run["papi"])
        self.assertIsNone(run["work"]["compute_s"])
        self.assertIsNone(results["summary"]["division"])

    def test_mesh_run(self):
        mesh = ("--mesh", "data=2,pipe=2", "--microbatches", 2, "--recompute", "on")
        run = self.train(4, "run", "--pace", "50", *mesh)
        for of_all in (identities.waits, identities.traffic, identities.dimensions, identities.bubble):
            of_all(self, self.path("run"))
        identities.leaves(self, self.path("run"), False)
        paced = run["paced"]
        self.assertIsNone(paced["measured_by"])
        # 334 training samples: 2 replicas take 32, of the last batch of 14 each 7
        self.assertEqual([(tape["stage"], tape["shard"], tape["batch"]) for tape in paced["measured"]],
                         [(0, 0, 32), (0, 0, 7), (1, 0, 32), (1, 0, 7)])
        for tape in paced["measured"]:
            for key in ("forward_s", "recompute_s", "backward_s", "update_s", "data_s"):
                self.assertGreater(tape[key], 0, (key, tape))
        for row in gwrun.batches(self.path("run"))[:8]:  # a stage sleeps through its own share
            share = next(tape for tape in paced["measured"]
                         if (str(tape["stage"]), tape["batch"]) == (row["stage"], 32))
            least = 50 * sum(share[f"{phase}_s"] for phase in ("data", "forward", "recompute", "backward"))
            self.assertGreater(float(row["wall_s"]), 0.999 * least, row)
        self.assertEqual(run["results"]["simulated"]["statistic"], "median")
        self.assertIsNone(run["work"]["compute_s"])

    def test_refused(self):
        for ranks, named, *words in (
                (1, "--update eager", "--update", "lazy", "--comm", "iallreduce"),
                (2, "--update eager", "--mesh", "pipe=2", "--update", "lazy"),
                (2, "--paired", "--mesh", "tensor=2", "--paired"),
                (2, "4096 threads", "--mesh", "pipe=2", "--threads", 4096),
                (2, "--compress auto", "--compress", "auto"), (2, "--paired", "--paired"),
                (2, "--bound", "--bound"), (2, "--forecast", "--forecast"),
                (1, "--overhead", "--overhead", 20), (1, "--papi-events", "--papi-events", "A"),
                (1, "4096 threads", "--threads", 4096)):
            with self.subTest(words=words):
                gwrun.refusal(gwrun.run(ranks, "train", *SMALL, "--pace", 1, *words), named)
