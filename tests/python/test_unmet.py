"""A codec that encodes nothing does not stand in a run's label, and other things that were asked for and did
not happen are told: before the first step if that is certain, at the end by what was counted, in run.json,
and wherever a run is shown."""

import csv

import gwrun

SMALL = ("--data", "synthetic:samples=600,features=16,classes=4", "--batch", 24, "--steps", 5, "--ceilings", "off")
HERE = "hier sums plain floats within a node, and all 2 ranks are on one"  # its note
COUNTED = "no encoding was counted"
ALONE = "1 rank exchanges nothing"


class Unmet(gwrun.Case):

    def train(self, ranks, *words, name="run", layers="12"):
        """(run.json, printed lines)"""
        done = gwrun.ok(ranks, "train", *SMALL, "--layers", layers, "--out", self.path(name), "--overwrite", *words)
        return gwrun.run_json(self.path(name)), done.stdout.splitlines()

    def tool(self, *words):
        return gwrun.ok(1, *words).stdout

    def unmet(self, *told):
        return [dict(zip(("option", "value", "what", "why"), one)) for one in told]

    def test_beyond_the_end(self):
        """Options that wait for a step which never comes, and a rate that is 0, are told before the first step."""
        end = "nothing comes after it: the run ends with step 5"
        for ranks, words, notes in (
                (2, ("--comm", "onebitadam:freeze=5", "--compress", "onebit"), ["--comm onebitadam:freeze=5: " + end]),
                (2, ("--comm", "onebitadam:freeze=4", "--compress", "onebit"), []),
                (2, ("--comm", "diloco:period=9"), ["--comm diloco:period=9: " + end]),
                (2, ("--comm", "diloco:period=5"), []),  # the last step exchanges
                (2, ("--compress", "topk:warmup=6"), ["--compress topk:warmup=6: " + end]),
                (2, ("--lr-warmup", 8), ["--lr-schedule constant:warmup=8: " + end]),
                (2, ("--lr-schedule", "cosine:steps=3"), ["--lr-schedule cosine:steps=3: the rate is 0: nothing moves from "
                                                         "step 4 of 5 on"]),
                (2, ("--lr-schedule", "step:every=2,factor=0"), ["--lr-schedule step:every=2,factor=0: the rate is 0: "
                                                                 "nothing moves from step 3 of 5 on"]),
                (2, ("--lr-schedule", "cosine"), [])):
            with self.subTest(words=words):
                _, lines = self.train(ranks, *words)
                first = next(i for i, line in enumerate(lines) if line.startswith("epoch"))
                self.assertEqual([line[6:] for line in lines[:first] if line.startswith("note: --")], notes)
        run, _ = self.train(2, "--comm", "onebitadam:freeze=5", "--compress", "onebit")
        self.assertEqual(run["comm"]["unmet"][1]["why"], COUNTED)

    def test_shown_everywhere(self):
        """Where hier encodes nothing, where it does, and one rank."""
        hier = ("--comm", "allreduce:algo=hier", "--compress", "topk:ratio=0.001")
        run, lines = self.train(2, *hier, name="all/plain")
        self.assertEqual(lines[2], HERE)
        self.assertIn(f"note: --compress topk:ratio=0.001: not encoded here: {COUNTED}", lines)
        comm = run["comm"]
        self.assertEqual((comm["codec"], comm["error_feedback"], comm["notes"]),
                         ("topk (not encoded here)", False, HERE + "\n"))
        self.assertEqual(comm["unmet"], self.unmet(("compress", "topk:ratio=0.001", "not encoded here", COUNTED)))
        self.assertEqual(comm["encoded"], [{"codec": "topk:ratio=0.001", "floats": 0, "bytes": 0}])
        run, lines = self.train(2, "--compress", "topk:ratio=0.001", name="all/coded")
        self.assertIn("over gathersum, topk:ratio=0.001 with error feedback;", lines[1])
        comm = run["comm"]
        self.assertEqual((comm["codec"], comm["error_feedback"], comm["unmet"]), ("topk", True, []))
        self.assertEqual(comm["encoded"][0]["floats"], 2 * 5 * run["parameters"])
        _, lines = self.train(1, "--compress", "topk:ratio=0.001", name="all/alone")
        self.assertIn("allreduce over gathersum, topk:ratio=0.001 (not encoded here); GEMM", lines[1])
        self.assertEqual(lines[2], f"note: --compress topk:ratio=0.001: not encoded here: {ALONE}")
        self.assertEqual(sum("not encoded here: " in line for line in lines), 1)  # once, at the start
        for name in "plain", "alone":
            shown = self.tool("show", self.path(f"all/{name}"))
            self.assertIn("codec topk:ratio=0.001 (not encoded here)\n", shown)
            self.assertIn(f"NOT ENCODED HERE: --compress topk:ratio=0.001: {COUNTED if name == 'plain' else ALONE}", shown)
        self.assertIn("codec topk:ratio=0.001 with error feedback\n", self.tool("show", self.path("all/coded")))
        table = self.tool("table", *(self.path(f"all/{name}") for name in ("plain", "coded", "alone")))
        self.assertRegex(table, r"(?s)plain # .*coded  .*alone # .*#: not encoded here: --compress topk")
        rows = {row["folder"]: row for row in csv.DictReader(self.tool("export", self.path("all")).splitlines())}
        self.assertEqual({name: (row["codec"], "(not encoded here)" in row["label"], "not encoded here" in row["marks"])
                          for name, row in rows.items()},
                         {"plain": ("topk (not encoded here)", True, True), "coded": ("topk", False, False),
                          "alone": ("topk (not encoded here)", True, True)})
        self.tool("report", self.path("all"), "--out", self.path("page.html"))
        page = gwrun.read(self.path("page.html"))
        self.assertIn(f"not encoded here: --compress topk:ratio=0.001: {COUNTED}", page)
        for label in (row["label"] for row in rows.values()):
            self.assertIn(label, page)

    def test_kinds(self):
        """What else may stand in a label, and did not happen."""
        alone = ("comm", "allreduce", "nothing is exchanged", "there is 1 rank")
        other = "data=1: there is no other replica"
        held = ("error-feedback", "on", "nothing is held back")
        for ranks, words, *told in (
                (1, ("--compress", "qsgd", "--wire-check", "on", "--error-feedback", "on"),
                 ("compress", "qsgd", "not encoded here", ALONE), alone, (*held, "no codec encodes"),
                 ("wire-check", "on", "no message is checked", ALONE)),
                (2, ("--comm", "allreduce:algo=hier", "--wire-check", "on"),
                 ("wire-check", "on", "no message is checked", "no frame was counted")),
                (2, ("--error-feedback", "on"), (*held, "the codec is lossless")),
                (2, ("--compress", "topk;min_bytes=1M"),
                 ("compress", "topk", "not encoded here", COUNTED)),
                (2, ("--compress", "qsgd;layer0=fp16;layer1=fp16"),
                 ("compress", "qsgd", "not encoded here", COUNTED)),
                (2, ("--compress", "topk", "--compress-stats", 9),
                 ("compress-stats", "9", "no step was compared", "the run ended before that step")),
                (2, ("--mesh", "pipe=2", "--compress", "topk"), ("compress", "topk", "not encoded here", other),
                 ("comm", "allreduce", "nothing is exchanged", other)),
                (2, ("--comm", "local:period=9", "--compress", "qsgd"),  # settling encodes
                 ("comm", "local:period=9", "nothing comes after it", "the run ends with step 5"))):
            with self.subTest(words=words):
                run, lines = self.train(ranks, *words)
                self.assertEqual(run["comm"]["unmet"], self.unmet(*told))
                self.assertEqual([line for line in lines if line.startswith("note: --")],
                                 ["note: --{} {}: {}: {}".format(*one) for one in told])
                if run["results"]["summary"]["statistic"] == "absent":  # show has no step to show
                    continue
                shown = self.tool("show", self.path("run"))
                for *_, why in told:
                    self.assertIn(why, shown)

    def test_notes(self):
        """What a strategy or an algorithm finds when it opens stands among the first lines."""
        once = "nothing is overlapped: all gradients travel in one piece, which --update eager waits for at once"
        for words, note in ((("--comm", "powersgd:rank=32"),
                             "powersgd: nothing is compressed: factors would make no matrix smaller"),
                            (("--comm", "iallreduce"), f"iallreduce: {once}"), (("--comm", "sharded"), f"sharded: {once}"),
                            (("--comm", "iallreduce:bucket=256"), None), (("--comm", "delayed"), None),
                            (("--comm", "iallreduce", "--update", "lazy"), None),
                            (("--comm", "allreduce:algo=hier"), None),
                            (("--comm", "allreduce:algo=(hier:inner=tree)"), HERE)):
            with self.subTest(words=words):
                run, lines = self.train(2, *words)
                self.assertEqual((run["comm"]["notes"], run["comm"]["unmet"]), (note and note + "\n", []))
                self.assertIn(note or "", lines[:3][-1])

    def test_activations(self):
        """Tensor ranks of a single layer pass no outputs; those of a pipe check their frames."""
        run, _ = self.train(2, "--mesh", "tensor=2", "--compress-activations", "fp16", layers="")
        self.assertIn(self.unmet(("compress-activations", "fp16", "not encoded here", COUNTED))[0], run["comm"]["unmet"])
        run, _ = self.train(2, "--mesh", "pipe=2", "--compress-activations", "fp16", "--wire-check", "on")
        self.assertEqual([one["option"] for one in run["comm"]["unmet"]], ["comm"])
        self.assertGreater(run["results"]["checks"]["wire"]["frames"], 0)

    def test_check_and_bench(self):
        done = gwrun.run(1, "train", *SMALL, "--check", "--compress", "topk")
        self.assertIn(f"note: --compress topk: not encoded here: {ALONE}", done.stdout)
        grid = ("--algos", "hier,sra", "--compress", "qsgd:bits=2", "--sizes", "4K")
        for words in (("allreduce", "--repeats", 2), ("overlap", "--repeats", 1, "--progress", "poll")):
            done = gwrun.run(2, "bench", *words, *grid)
            self.assertRegex(done.stdout, r"hier +qsgd:bits=2_\(not_encoded_here\) ")
            self.assertRegex(done.stdout, r"sra +qsgd:bits=2  ")
            self.assertIn(f"not encoded here: qsgd:bits=2 over hier: {COUNTED}\n", done.stdout)
        done = gwrun.run(2, "bench", "step", "--comm", "allreduce:algo=hier", "--compress", "topk", "--layers", "12",
                         "--steps", 2, "--warmup", 1)
        self.assertRegex(done.stdout, r"topk_\(not_encoded_here\) ")
        self.assertIn(f"{HERE}\nnote: --compress topk: not encoded here: {COUNTED}\n", done.stdout)

    def test_refused(self):
        gwrun.refusal(gwrun.run(2, "train", *SMALL, "--comm", "iallreduce:credit=4K"),
                      "add order=priority, or leave credit out")
