"""gradwire plan --mesh, through the program. No timing is asserted: the checks hold on any machine."""

import shlex

import gwrun

# 50-40-30-20-8: 4 layers, the narrowest of 8
MODEL = ("--inputs", 50, "--classes", 8, "--layers", "40,30,20", "--batch", 12)
PARTS = ("compute_s", "bubble_s", "tensor_s", "data_s")


class PlanMesh(gwrun.Case):

    def plan(self, ranks, *words):
        out = self.path("plan.json")
        done = gwrun.clean(ranks, "plan", *MODEL, "--json", out, *words)
        return gwrun.read_json(out)["results"], done.stdout

    def check(self, plan, ranks):
        """Ranked, of this many ranks, and what a step takes is the sum of its parts."""
        layouts = plan["layouts"]
        steps = [round(one["step_s"] * 1e9) for one in layouts]  # ns
        keys = [(ns, one["activation_bytes"]) for ns, one in zip(steps, layouts)]
        self.assertEqual(keys, sorted(keys))
        self.assertEqual(len({(x["mesh"], x["split"], x["timetable"], x["microbatches"])
                              for x in layouts}), len(layouts))
        for one in layouts:
            self.assertEqual(one["data"] * one["pipe"] * one["tensor"], ranks)
            self.assertAlmostEqual(sum(one[part] for part in PARTS) / one["step_s"], 1, places=6)
            self.assertGreater(one["compute_s"], 0)
            self.assertGreater(one["activation_bytes"], 0)
            for dim in ("data", "pipe", "tensor"):
                self.assertEqual(one["sent_bytes"][dim] > 0, one[dim] > 1, one)
            self.assertEqual(one["tensor_s"] > 0, one["tensor"] > 1)
            self.assertEqual(one["split"] is None, one["tensor"] == 1)
            self.assertEqual(one["timetable"] is None, one["pipe"] == 1)
        plain = [ns for ns, one in zip(steps, layouts) if one["data"] == ranks]
        best = steps[plan["chosen"]]
        if plain:
            gains = steps[0] < (1 - plan["margin"]) * plain[0]
            self.assertEqual(best, steps[0] if gains else plain[0])
        else:
            self.assertEqual(plan["chosen"], 0)

    def test_all(self):
        for ranks in (1, 2, 4):
            plan, text = self.plan(ranks, "--mesh", "auto", "--microbatches", "1,2,4", "--verify", 2)
            self.check(plan, ranks)
            shapes = {(one["data"], one["pipe"], one["tensor"]) for one in plan["layouts"]}
            self.assertEqual(shapes, {(d, p, t) for d in (1, 2, 4) for p in (1, 2, 4)
                                      for t in (1, 2, 4) if d * p * t == ranks})
            measured = [one for one in plan["layouts"] if one["measured_step_s"]]
            plain, = [one for one in plan["layouts"] if one["data"] == ranks]
            self.assertIn(plain, measured)
            self.assertIn(plan["layouts"][plan["chosen"]], measured)
            least = 2 if ranks > 1 else 1
            self.assertIn(len(measured), (least, least + 1))
            self.assertIn("prediction farthest off", text)
            for one in measured:
                self.assertIn(f"{one['measured_step_s'] * 1e3:9.3f} "
                              f"{one['step_s'] / one['measured_step_s']:9.2f}", text)

    def test_bytes_are_those_of_a_run(self):
        """All ranks together send what a run with these options says it sent."""
        plan, _ = self.plan(4, "--mesh", "auto", "--microbatches", "2", "--timetables", "1f1b")
        for one in plan["layouts"]:
            if one["split"] == "columns":
                continue  # gathered and scattered blocks are padded
            words = ["--mesh", one["mesh"], "--microbatches", one["microbatches"]]
            run = gwrun.train(4, self.path("run"), "--data",
                              "synthetic:samples=60,features=50,classes=8", "--layers", "40,30,20",
                              "--batch", 12, "--steps", 2, *words, "--overwrite")
            rows = [row for row in gwrun.batches(self.path("run")) if row["step"] == "2"]
            self.assertEqual(len(rows), 4)
            for dim in ("data", "pipe", "tensor"):
                if run["mesh"] and f"{dim}_bytes" in rows[0]:
                    sent = sum(float(row[f"{dim}_bytes"]) for row in rows)
                    self.assertAlmostEqual(one["sent_bytes"][dim], sent, delta=0.02 * sent, msg=one)

    def test_one_mesh(self):
        plan, _ = self.plan(4, "--mesh", "tensor=2,pipe=2", "--timetables", "zb;gpipe",
                            "--microbatches", "3")
        self.check(plan, 4)
        self.assertEqual({one["mesh"] for one in plan["layouts"]}, {"tensor=2,pipe=2"})
        self.assertEqual({(one["timetable"], one["split"]) for one in plan["layouts"]},
                         {(t, s) for t in ("zb", "gpipe") for s in ("pairs", "columns")})

    def test_command_runs(self):
        """The recommendation is a command that works, with the options given."""
        for mesh in ("auto", "pipe=2", "tensor=2"):
            plan, text = self.plan(2, "--mesh", mesh, "--lr", 0.05, "--microbatches", "2")
            line = text[text.index("recommended:"):].splitlines()[0]
            words = shlex.split(line.split("gradwire", 1)[1])
            self.assertEqual(words, shlex.split(plan["command"].split("gradwire", 1)[1]))
            self.assertEqual(words[words.index("--lr") + 1], "0.05")
            chosen = plan["layouts"][plan["chosen"]]
            self.assertEqual(words[words.index("--mesh") + 1], chosen["mesh"])
            gwrun.clean(2, *words, "--data", "synthetic:samples=60,features=50,classes=8",
                        "--steps", 2, "--quiet")

    def test_whole_tensors(self):
        """What training would refuse is not among the layouts."""
        plan, _ = self.plan(2, "--mesh", "auto", "--optimizer", "lars", "--microbatches", "2")
        self.assertEqual({(one["data"], one["pipe"], one["tensor"]) for one in plan["layouts"]}, {(2, 1, 1), (1, 2, 1)})
        self.refused(2, "--mesh", "tensor=2", "--optimizer", "lars", says=["--optimizer lars moves whole tensors"])

    def refused(self, ranks, *words, says):
        with self.subTest(ranks=ranks, words=words):
            gwrun.refusal(gwrun.run(ranks, "plan", *MODEL, *words), *says)

    def test_refuses(self):
        self.refused(4, "--mesh", "pipe=2,tensor=3", says=["multiple of 6 ranks", "4"])
        self.refused(2, "--mesh", "data=4", says=["--mesh data=4 takes 4 ranks", "2"])
        self.refused(4, "--mesh", "pipe=4", "--timetables", "interleaved", "--microbatches", 4,
                     says=["the model has 4 layers", "at most pipe=2"])
        self.refused(2, "--mesh", "pipe=2", "--timetables", "interleaved", "--microbatches", 3,
                     says=["interleaved", "3 microbatches on 2 stages"])
        self.refused(2, "--mesh", "pipe=2", "--microbatches", 13,
                     says=["--microbatches 13", "12 samples"])
        for ranks in (0, 3):
            self.refused(ranks, "--mesh", "pipes=2", says=["pipes", "pipe"])
            self.refused(ranks, "--mesh", "auto", "--timetables", "zz", says=["zz", "zb"])
            self.refused(ranks, "--mesh", "auto", "--microbatches", "0", says=["microbatches=0"])
            self.refused(ranks, "--mesh", "auto", "--microbatches", "", says=["--microbatches"])
            self.refused(ranks, "--microbatches", "2", says=["--microbatches", "--mesh"])
            self.refused(ranks, "--mesh", "auto", "--codecs", "none", says=["--codecs", "--mesh"])
            self.refused(ranks, "--mesh", "auto", "--compress", "fp16", says=["--compress"])
            self.refused(ranks, "--mesh", "auto", "--local-batch", 4, says=["--batch"])
            self.refused(ranks, "--mesh", "auto", "--comm", "local",
                         says=["--comm local", "in every step"])
            self.refused(ranks, "--mesh", "auto", "--comm", "allreduce:algo=shm", says=["algo=shm"])
            self.refused(ranks, "--mesh", "auto", "--budget", 1, says=["--budget", "--mesh"])
            self.refused(ranks, "--mesh", "auto", "--comm", "iallreduce:progress=thread",
                         says=["progress=poll"])
        self.refused(4, "--mesh", "tensor=4", "--layers", 3,
                     says=["--mesh tensor=4", "layer 0 has 3 neurons", "at most tensor=3"])
