"""`gradwire simulate --train`: what simulated ranks learn and send is what as many processes do; its clock is its own."""

import os

import gwrun

WORK = ("--layers", "32", "--batch", "90", "--epochs", "2", "--limit", "900", "--limit-test", "300")
LINK = ("--link", "100mbit,50us,5us")
TIMES = ("elapsed_s", "train_s", "test_s")


class SimulateTrain(gwrun.Case):
    def simulate(self, ranks, *words):
        """The folder of a simulated run."""
        out = os.path.join(self.dir, f"simulated{len(os.listdir(self.dir))}")
        gwrun.well(gwrun.run(0, "simulate", "--train", "--ranks", ranks, *LINK, *WORK, *words, "--out", out))
        return out

    def rows(self, folder, name):
        """Rows of a file without what a clock says."""
        rows = gwrun.rows(folder, name)
        return [{k: v for k, v in row.items() if not k.endswith("_s") and k not in TIMES} for row in rows]

    def test_learns_and_sends_what_processes_do(self):
        cells = {
            3: ("--comm", "iallreduce:algo=ring", "--compress", "zlib"),
            4: ("--comm", "allreduce:algo=halving", "--mesh", "pipe=2,tensor=2", "--microbatches", "2", "--tensor-algo",
                "ring"),
            2: ("--comm", "diloco:algo=sra,period=3", "--optimizer", "adamw", "--lr", "0.01", "--partition",
                "labels:alpha=0.5")}
        for ranks, words in cells.items():
            with self.subTest(words=words):
                real = os.path.join(self.dir, f"real{ranks}")
                gwrun.well(gwrun.run(ranks, "train", *WORK, *words, "--profile", "timers", "--ceilings", "off",
                                     "--overhead", "0", "--out", real))
                simulated = self.simulate(ranks, *words)
                self.assertEqual(self.rows(simulated, "epochs.csv"), self.rows(real, "epochs.csv"))
                keys = ("rank", "step", "samples", "loss", "wire_bytes", "messages", "logical_bytes")
                both = [[[row[k] for k in keys] for row in gwrun.rows(folder, "batches.csv")]
                        for folder in (simulated, real)]
                self.assertEqual(*both)
                # The rank that measured computation by the real clock goes on by the virtual one.
                walls = {row["rank"]: float(row["wall_s"]) for row in gwrun.rows(simulated, "batches.csv")}
                self.assertTrue(all(wall > 0 for wall in walls.values()), walls)

    def test_times_repeat_and_come_from_profile_and_link(self):
        profile = os.path.join(self.dir, "p.json")
        gwrun.well(gwrun.run(0, "bench", "layers", "--layers", "32", "--batch", "30", "--steps", "5", "--profile", profile))
        words = ("--comm", "allreduce:algo=ring", "--step-profile", profile, "--coding-ns", "0", "--inject-skew", "1:3ms",
                 "--steps", "12")
        runs = [self.simulate(3, *words, *more) for more in ((), (), ("--speed", "2"))]
        files = [gwrun.read(folder, "batches.csv") for folder in runs]
        self.assertEqual(files[0], files[1])
        rows, fast = ([gwrun.rows(folder, "batches.csv") for folder in (runs[0], runs[2])])
        self.assertAlmostEqual(float(rows[5]["forward_s"]), 2 * float(fast[5]["forward_s"]), delta=2e-9)
        held = [float(row["data_s"]) for row in rows if row["rank"] == "1"]
        self.assertTrue(all(x >= 0.003 for x in held), held)
        run = gwrun.read_json(runs[0], "run.json")
        self.assertEqual((run["program"], run["machine"]["clock"], run["simulated"]["train"]), ("simulate", "virtual", True))
        # A ring sends 2 (P - 1) / P of the bytes over each link; the wait is no shorter than that.
        floor = 2 * 2 / 3 * 4 * run["parameters"] / 12.5e6
        waits = [float(row["mpi_wait_s"]) + float(row["mpi_post_s"]) for row in rows if row["rank"] == "1"]
        self.assertTrue(all(floor <= x <= 1.2 * floor + 1e-3 for x in waits[1:]), (floor, waits))

    def test_coding_takes_time_by_codec(self):
        words = ("--comm", "allreduce:algo=sra", "--compress", "qsgd", "--steps", "6")
        run = gwrun.read_json(self.simulate(2, *words), "run.json")
        prices = {one["codec"]: one["seconds_per_float"] for one in run["simulated"]["coding"]}
        self.assertEqual(set(prices), {"qsgd", "none"})
        self.assertGreater(prices["qsgd"]["encode"], 0)
        rows = gwrun.rows(self.simulate(2, *words, "--coding-ns", "1000"), "batches.csv")
        # Of n floats a rank encodes the other's half, adds that to its own, encodes and adopts the sum, and decodes.
        halves = 1e-6 * run["parameters"] / 2
        for row in rows[4:]:
            self.assertAlmostEqual(float(row["encode_s"]), 3 * halves, delta=0.01 * halves)
            self.assertAlmostEqual(float(row["decode_s"]), 2 * halves, delta=0.01 * halves)

    def test_strategies_work_takes_time(self):
        words = ("--comm", "powersgd:algo=sra", "--steps", "6")
        for more, works in (((), True), (("--coding-ns", "0"), False)):
            rows = gwrun.rows(self.simulate(2, *words, *more), "batches.csv")
            self.assertEqual(all(float(row["encode_s"]) > 0 for row in rows), works)

    def test_agreements_take_time(self):
        profile = os.path.join(self.dir, "p.json")
        gwrun.well(gwrun.run(0, "bench", "layers", "--layers", "32", "--batch", "30", "--steps", "5", "--profile", profile))
        words = ("--comm", "sharded:algo=sra", "--step-profile", profile, "--coding-ns", "0", "--steps", "6")
        steps = [[float(row["wall_s"]) for row in gwrun.rows(self.simulate(3, *words, *more), "batches.csv")]
                 for more in ((), ("--clip-norm", "1"))]
        rounds = 3 * (50e-6 + 2 * 5e-6)  # of three ranks: one joins another, two are added, the third hears of it
        for without, clipped in zip(*steps):
            self.assertAlmostEqual(clipped - without, rounds, delta=rounds / 5)  # ranks wait elsewhere for less

    def test_native_is_replaced_and_said(self):
        self.assertIn("modelled as halving:chunk=0",
                      gwrun.read_json(self.simulate(2, "--comm", "allreduce"), "run.json")["comm"]["algorithm"])

    def test_measures_a_model_by_itself(self):
        words = ("simulate", "--ranks", "4", *LINK, "--layers", "32", "--batch", "90", "--comm", "allreduce:algo=ring")
        gwrun.well(gwrun.run(0, *words, "--json", self.path("s.json")))
        step = gwrun.read_json(self.path("s.json"))["step"]
        self.assertEqual((step["parameters"], step["batch"], step["compute"]), (25450, 23, "spin"))
        self.assertGreater(min(step["forward_s"], step["backward_s"], step["optimizer_s"]), 0)
        network = gwrun.read_json(self.path("s.json"))["network"]
        self.assertGreater(network["coding_s"]["add"], 0)

    def test_refuses(self):
        train = ("simulate", "--train", "--ranks", "2", *LINK)
        for words, line in (((*train, "--resume", "auto"), "--resume"),
                            ((*train, "--comm", "iallreduce:progress=thread"), "threads"),
                            ((*train, "--compress", "auto"), "plan"),
                            (("simulate", "--train", "--ranks", "4096", *LINK, "--layers", "9999,9999"), "4096 replicas of"),
                            (("simulate", *train[2:], "--profile", "resnet18", "--layers", "8"), "--layers"),
                            (("simulate", "--train", "--layers", "8"), "--ranks N and --link")):
            gwrun.refusal(gwrun.run(0, *words), line)
