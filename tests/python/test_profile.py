"""How much of a run is measured, and what that costs: --profile and --overhead."""


import gwrun

SMALL = ("--data", "synthetic:samples=4000,features=64,classes=5", "--layers", "32")

# What a run knows without any probe.
KNOWN = {"rank", "epoch", "step", "samples", "loss", "t_start_s", "wall_s", "logical_bytes",
         "injected_s"}

# Exchanges that carry something from step to step, in ways of their own: residuals, momentum, sums
# in flight, factors, tickets that random numbers hang on, replicas that drift apart.
STATES = [
    ("allreduce", "none"),
    ("allreduce", "natural"),
    ("iallreduce:bucket=4K", "topk:ratio=0.1,warmup=20"),
    ("iallreduce:bucket=4K", "randomk:ratio=0.1", "--error-feedback", "momentum"),
    ("iallreduce:bucket=4K", "qsgd:bits=4+zlib", "--update", "lazy"),
    ("iallreduce:progress=thread", "none"),
    ("sharded", "onebit", "--update", "lazy"),
    ("sparse", "topk:ratio=0.1", "--error-feedback", "dgc"),
    ("ps", "onebit;layer1=none"),
    ("ps:dedicated=1", "none"),
    ("powersgd:rank=2", "none"),
    ("delayed", "none"),
    ("delayed", "onebit", "--update", "lazy"),
    ("local:period=4,momentum=1", "none"),
    ("local:period=3", "topk:ratio=0.1"),
    ("gossip", "none"),
    ("gossip:topology=exponential", "none", "--update", "lazy"),
]


class Profile(gwrun.Case):

    def train(self, profile, *words):
        out = self.path(profile)
        run = gwrun.train(2, out, *SMALL, "--steps", 30, "--epochs", 1, "--profile", profile,
                          *words)
        return run, out

    def test_off_measures_walls_alone(self):
        """What is not measured is blank, not 0; and the training is the same."""
        comm = ("--comm", "iallreduce:bucket=4K", "--compress", "topk:ratio=0.1")
        off, out = self.train("off", *comm)
        rows = gwrun.batches(out)
        self.assertEqual(len(rows), 60)
        for row in rows:
            self.assertEqual({name for name, text in row.items() if text}, KNOWN)
            self.assertGreater(float(row["wall_s"]), 0)
        summary = off["results"]["summary"]
        self.assertGreater(summary["wall_s"], 0)
        for key in ("compute_s", "exposed_s", "hidden_s", "codec_s", "wire_bytes"):
            self.assertIsNone(summary[key], key)
        self.assertEqual({text for key, text in summary["phases"].items()}, {None})
        self.assertIsNone(off["results"]["wire_bytes"])
        self.assertEqual(off["sources"]["phases"], "absent")
        self.assertEqual([row["wire_bytes"] for row in gwrun.rows(out, "epochs.csv")], [""])
        timers, _ = self.train("timers", *comm)
        self.assertEqual(off["results"]["replica_hash"], timers["results"]["replica_hash"])
        self.assertGreater(timers["results"]["wire_bytes"], 0)
        self.assertEqual(timers["options"]["profile"], "timers")

    def test_overhead_leaves_no_trace(self):
        """The rehearsal's steps change nothing: what follows is the same to the bit."""
        for comm, codec, *more in STATES:
            with self.subTest(comm=comm, codec=codec):
                words = ("--comm", comm, "--compress", codec, "--momentum", "0.9", *more)
                without, plain_out = self.train("timers", *words, "--overhead", 0, "--overwrite")
                plain = gwrun.losses(plain_out)
                after, out = self.train("timers", *words, "--overhead", 7, "--overwrite")
                self.assertIsNone(without["overhead"])
                self.assertEqual(after["overhead"]["pairs"], 7)
                self.assertEqual(after["results"]["replica_hash"],
                                 without["results"]["replica_hash"])
                self.assertEqual(after["results"]["wire_bytes"], without["results"]["wire_bytes"])
                self.assertEqual(after["results"]["traffic"], without["results"]["traffic"])
                self.assertEqual(gwrun.losses(out), plain)

    def test_overhead_is_reported(self):
        run, _ = self.train("full", "--overhead", 40)
        o = run["overhead"]
        self.assertEqual((o["level"], o["pairs"], o["why"]), ("full", 40, None))
        self.assertTrue(o["ci_low"] <= o["ratio"] <= o["ci_high"], o)
        self.assertGreater(o["step_off_s"], 0)
        # forward (2 layers, loss), backward (2, with a descent each), data, update, and MPI's
        self.assertGreaterEqual(o["regions"], 9)
        self.assertGreater(o["estimate"], 0)
        self.assertAlmostEqual(o["estimate"], o["regions"] * o["region_s"] / o["step_off_s"],
                               delta=1e-6 * o["estimate"])
        run, _ = self.train("timers", "--overhead", 4)
        self.assertIsNone(run["overhead"]["ci_low"])  # four pairs have no 95% interval
        self.assertGreater(run["overhead"]["ratio"], 0)
        run, _ = self.train("off")
        self.assertIsNone(run["overhead"])

    def test_steps_too_long_for_the_budget(self):
        """By default the measurement takes a tenth of a second, or says why it did not: a machine
        may be fast enough for these steps."""
        out = self.path("wide")
        run = gwrun.train(2, out, "--data", "synthetic:samples=200,features=1024", "--layers",
                          "1024,1024", "--steps", 1, "--save-model", "off", overhead=None)
        left_out = run["overhead"]["pairs"] == 0
        self.assertEqual(run["overhead"]["ratio"] is None, left_out)
        self.assertEqual("--overhead PAIRS" in (run["overhead"]["why"] or ""), left_out)

    def test_bench(self):
        """Both profiles, each against off."""
        path = self.path("overhead.json")
        done = gwrun.ok(2, "bench", "overhead", "--pairs", 8, "--layers", "16", "--comm",
                        "iallreduce", "--compress", "topk", "--json", path)
        rows = gwrun.read_json(path)["results"]
        self.assertEqual([(row["level"], row["pairs"]) for row in rows],
                         [("timers", 8), ("full", 8)])
        for row in rows:
            self.assertTrue(row["ci_low"] <= row["ratio"] <= row["ci_high"], row)
        self.assertEqual(rows[0]["step_off_s"], rows[1]["step_off_s"])
        self.assertRegex(done.stdout, r"(?m)^timers +8 .*\nfull +8 ")

    def test_end_line(self):
        done = gwrun.ok(2, "train", *SMALL, "--steps", 5, "--profile", "off")
        self.assertIn("its parts were not measured (--profile off)", done.stdout)
        self.assertNotIn("nan", done.stdout)
