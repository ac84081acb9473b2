"""`gradwire plan --ranks`: what it plays, its rates beside those of `gradwire simulate`, what it leaves out, and its
predictions beside measured steps."""

import json
import re

import gwrun

LATENCY = "20us,2us"
SMALL = ("--inputs", 50, "--classes", 4, "--layers", "40,30")
KINDS = (("strategies", "comm/strategies.def"), ("algos", "comm/algos.def"), ("codecs", "compress/codecs.def"))


class PlanRanks(gwrun.Case):
    def plan(self, ranks, *words, real=0):
        path = self.path("plan.json")
        done = gwrun.ok(real, "plan", "--ranks", ranks, "--link", f"1gbit,{LATENCY}", "--json", path, *words)
        return gwrun.read_json(path), done.stdout

    def simulated(self, ranks, rate, row, *words):
        path = self.path("one.json")
        gwrun.clean(0, "simulate", "--ranks", ranks, "--link", f"{rate:.0f}bit,{LATENCY}", "--steps", 2, "--comm",
                    f"{row['strategy']}{',' if ':' in row['strategy'] else ':'}algo=({row['algorithm']})",
                    "--compress", row["codec"], "--json", path, *words)
        return gwrun.read_json(path)["step_s"]

    def test_rates(self):
        """Its steps are those of simulate, and on either side of a rate the other of the two is faster."""
        words = ("--bytes", "400000", "--coding-ns", "2")
        turns = 0
        for ranks, margin in ((4, 0.05), (7, 0), (8, 0.05)):
            run, _ = self.plan(ranks, *words, "--margin", margin, "--strategies", "allreduce;iallreduce:bucket=100000",
                               "--algos", "ring;sra", "--codecs", "fp16;qsgd:bits=4;onebit")
            base, = (row for row in run["results"] if row["baseline"])
            self.assertEqual((base["codec"], base["strategy"]), ("none", "iallreduce:bucket=100000"))
            for row in run["results"]:
                step_s = self.simulated(ranks, 1e9, row, *words)
                self.assertAlmostEqual(row["step_s"], step_s, delta=1e-9)
                self.assertLessEqual(row["least_s"], step_s)
                self.assertGreaterEqual(row["most_s"], step_s)
                leads = row["leads"]
                for rate in row["turns_bits_per_s"]:
                    for times, faster in (0.98, leads), (1.02, not leads):
                        x, y = (self.simulated(ranks, times * rate, of, *words) for of in (row, base))
                        self.assertEqual(x < (1 - margin) * y, faster, (ranks, row, rate, times))
                    leads = not leads
                    turns += 1
        self.assertGreater(turns, 5)

    def test_all(self):
        """Whatever is in a registry is a candidate, or is said to be none; lossy codecs stand apart from exact ones."""
        run, said = self.plan(6, "--bytes", "40000", "--coding-ns", 0)
        rows = run["results"]
        for key, (kind, table) in zip(("strategy", "algorithm", "codec"), KINDS):
            missing = set(re.findall(rf"^--{kind}: no candidate with (\w+): .+$", said, re.MULTILINE))
            have = {row[key].split(":")[0] for row in rows}
            self.assertFalse(have & missing, kind)
            if key == "codec":
                self.assertEqual(have | missing, set(gwrun.names(table)))
            self.assertLessEqual(have | missing, set(gwrun.names(table)))
        self.assertIn("--codecs: no candidate with threshold: ", said)
        self.assertIn("bytes depend on the data", said)
        self.assertTrue(all(row["exact"] == (row["codec"] == "none") for row in rows))
        self.assertEqual(sum(row["baseline"] for row in rows), 1)
        exact = said.index("\nexact gradients\n")
        lossy = said.index("\nlossy codecs; what they cost in accuracy is not priced\n")
        self.assertLess(exact, said.index("(the baseline)"))
        self.assertLess(said.index("(the baseline)"), lossy)
        self.assertIn("is faster: than the baseline by more than 5%", said)
        for kind in "exact", "lossy":
            steps = [row["step_s"] for row in rows if row["exact"] == (kind == "exact")]
            self.assertEqual(steps, sorted(steps))
            self.assertIn(f"\nfastest {kind}: --comm ", said)  # no program exchanges so many bytes
        self.assertIn("does compression pay here? ", said)

    def test_cost(self):
        """Unless it is named, an algorithm of which more than 32 ranks would be played is left out; what folds is not."""
        words = ("--bytes", "4000", "--coding-ns", 0, "--strategies", "allreduce", "--codecs", "none")
        run, said = self.plan(34, *words)
        self.assertIn("--algos: no candidate with tree: simulate: all 34 ranks would have to be played\n", said)
        self.assertEqual(len(run["results"]), 1)
        run, said = self.plan(34, *words, "--algos", "tree")
        self.assertEqual(run["results"][0]["algorithm"], "tree")

    def test_bound(self):
        """A codec whose size is not fixed, but near its bound, is played at that, and the output says so."""
        words = ("--bytes", "40000", "--coding-ns", 0, "--strategies", "allreduce", "--algos", "gathersum")
        run, said = self.plan(3, *words, "--codecs", "topk;topk:warmup=5;adaptive")
        row, = (row for row in run["results"] if not row["exact"])
        self.assertEqual((row["codec"], row["sent_bytes"]), ("topk", 2 * (4 + 5 * 100 + (10000 - 100) // 255)))
        self.assertIn("--codecs: topk: size at its bound; independent numbers take 0.9 to 1 of it\n", said)
        for name in "topk:warmup=5", "adaptive":
            self.assertIn(f"--codecs: no candidate with {name}: ", said)
        done = gwrun.clean(0, "simulate", "--ranks", 3, "--link", "1gbit", "--bytes", 40000, "--comm",
                           "allreduce:algo=gathersum", "--compress", "topk")
        self.assertIn("note: --compress topk: size at its bound; independent numbers take 0.9 to 1 of it\n", done.stdout)

    def test_verify(self):
        """The trainer's own model: its step is measured on one rank, and the fastest ways on all of them."""
        run, said = self.plan(2, *SMALL, "--codecs", "fp16", "--verify", 3, "--steps", 4, "--block", 2, real=2)
        measured = [row for row in run["results"] if row["measured_step_s"]]
        self.assertEqual(len(measured), 3)
        self.assertTrue(any(row["baseline"] for row in measured))
        self.assertEqual({row["codec"] for row in measured}, {"none", "fp16"})
        for row in measured:
            self.assertAlmostEqual(row["predicted_over_measured"], row["step_s"] / row["measured_step_s"])
        self.assertIn("pred/meas", said)
        self.assertGreater(run["computed_s"], 0)
        self.assertEqual(run["parameters"], 50 * 40 + 40 + 40 * 30 + 30 + 30 * 4 + 4)
        self.assertIn("\nfastest exact: mpiexec -n 2 gradwire train ", said)

    def test_verify_profile(self):
        """A profile's steps are replayed on real ranks: they last no less than they compute."""
        tensor = {"group": 0, "forward_s": 1e-3, "std": 1}
        profile = {"schema": 1, "model": "two", "source": "made up", "device": "none", "machine": "none",
                   "date": "2026-11-28", "torch": None, "threads": 1, "batch": 1, "steps": 1, "optimizer_s": 0,
                   "tensors": [tensor | {"name": "a", "shape": [40, 30], "backward_s": 2e-3},
                               tensor | {"name": "b", "shape": [40], "backward_s": 1e-3, "group": 1}]}
        path = self.path("profile.json")
        gwrun.write(path, json.dumps(profile))
        run, said = self.plan(2, "--profile", path, "--codecs", "topk", "--verify", 3, "--steps", 3, real=2)
        measured = [row["measured_step_s"] for row in run["results"] if row["measured_step_s"]]
        self.assertEqual(len(measured), 3)
        self.assertGreater(min(measured), 5e-3)
        self.assertIn(f"fastest exact: mpiexec -n 2 gradwire replay '{path}' --out DIR --comm '", said)
        run, _ = self.plan(2, "--bytes", "40K", "--codecs", "fp16", "--verify", 2, "--update", "lazy", real=2)
        self.assertEqual(sum(row["measured_step_s"] is not None for row in run["results"]), 2)

    def test_refusals(self):
        def refused(ranks, says, *words):
            gwrun.refusal(gwrun.run(ranks, "plan", *words), says)

        link = ("--link", "1gbit")
        refused(2, "start 1, not 2", "--ranks", 4, *link)
        refused(2, "start 4, not 2", "--ranks", 4, *link, "--verify", 2)
        refused(0, "--link", "--ranks", 4)
        for words in link, ("--bytes", "4K"), ("--speed", 2), ("--per-host", 2), ("--coding-ns", 1):
            refused(0, f"{words[0]} says what is played: give --ranks", *words)
        refused(0, "list what to compare in --strategies", "--ranks", 4, *link, "--comm", "allreduce")
        refused(0, "--mesh", "--ranks", 4, *link, "--mesh", "auto")
        refused(0, "'nothing'", "--ranks", 4, *link, "--codecs", "nothing", "--bytes", "4K")
        refused(0, "--budget", "--ranks", 4, *link, "--bytes", "4K", "--budget", "1s")
        refused(0, "--top", "--ranks", 4, *link, "--bytes", "4K", "--top", 3)
        refused(0, "--wire-check", "--ranks", 4, *link, "--bytes", "4K", "--wire-check", "on")
        refused(0, "no exact exchange of these can be played: --comm local: its exchange repeats after 8", "--ranks", 4, *link,
                "--bytes", "4K", "--strategies", "local", "--algos", "ring")
        refused(0, "no exact exchange of these can be played: simulate: algo=shm", "--ranks", 4, *link, "--algos", "shm", "--bytes", "4K")
