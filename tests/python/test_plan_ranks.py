"""`gradwire plan --ranks`: what it plays, its rates beside those of `gradwire simulate`, what it leaves out, and its
predictions beside measured steps."""

import gwrun

LATENCY = "20us,2us"
SMALL = ("--inputs", 50, "--classes", 4, "--layers", "40,30")
KINDS = (("strategies", "comm/strategies.def"), ("algorithms", "comm/algos.def"), ("codecs", "compress/codecs.def"))


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
            begins = f"without a candidate (gradwire simulate says why): {kind} "
            out = [line for line in said.splitlines() if line.startswith(begins)]
            missing = set(out[0].removeprefix(begins).split(", ")) if out else set()
            have = {row[key].split(":")[0] for row in rows}
            self.assertFalse(have & missing, kind)
            if key == "codec":
                self.assertEqual(have | missing, set(gwrun.names(table)))
            self.assertLessEqual(have | missing, set(gwrun.names(table)))
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
            self.assertIn(f"\nfastest {kind}: mpiexec -n 6 gradwire train --comm ", said)
        self.assertIn("does compression pay here? ", said)

    def test_cost(self):
        """What would take long is left out, and named; what folds is not."""
        _, said = self.plan(8, "--bytes", "40000", "--coding-ns", 0, "--algos", "ring;tree", "--most-played", 4)
        self.assertIn("left out for their cost (--most-played): algorithms tree\n", said)
        self.assertIn(" ring ", said)

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

    def test_refusals(self):
        def refused(ranks, says, *words):
            gwrun.refusal(gwrun.run(ranks, "plan", *words), says)

        link = ("--link", "1gbit")
        refused(2, "--ranks 4 is played in one process, and here are 2: start it without mpiexec", "--ranks", 4, *link)
        refused(2, "start it by mpiexec -n 4", "--ranks", 4, *link, "--verify", 2)
        refused(0, "--link", "--ranks", 4)
        refused(0, "--link", *link)
        refused(0, "list what to compare in --strategies", "--ranks", 4, *link, "--comm", "allreduce")
        refused(0, "gradwire replay", "--ranks", 4, *link, "--profile", "x.json", "--verify", 2)
        refused(0, "--mesh", "--ranks", 4, *link, "--mesh", "auto")
        refused(0, "'nothing'", "--ranks", 4, *link, "--codecs", "nothing", "--bytes", "4K")
        refused(0, "no exact exchange of these can be played", "--ranks", 4, *link, "--algos", "shm", "--bytes", "4K")
