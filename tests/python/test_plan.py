"""gradwire plan and --compress auto, through the program. No timing is asserted: the checks hold on any
machine."""

import shlex

import gwrun

SMALL = ("--data", "synthetic:samples=600,features=50,classes=4", "--layers", "40,30", "--steps", 8)
DEFAULT = ["none", "fp16", "qsgd:bits=8", "qsgd:bits=4", "topk:ratio=0.01"]


class Plan(gwrun.Case):

    def close(self, a, b):
        self.assertLessEqual(abs(a - b), 1e-6 * max(abs(a), abs(b), 1e-9), (a, b))

    def check_forecast(self, f, ranks):
        """What the model says of itself holds in its own figures."""
        self.assertEqual((f["ranks"], f["nodes"]), (ranks, 1))
        steps = [c["step_s"] for c in f["candidates"]]
        self.assertEqual(steps, sorted(steps))
        local = sum(f["local"].values())
        for c in f["candidates"]:
            self.close(c["local_s"], local)
            self.close(c["step_s"], c["local_s"] + c["codec_s"] + c["exposed_s"])
            self.assertGreaterEqual(c["codec_s"], 0)
            if c["exchange"]:  # measured whole
                self.assertIn(c["algorithm"], ("native", "shm", "persistent", "hier"))
                sizes = [p["bytes"] for p in c["exchange"]]
                self.assertEqual(sizes, sorted(set(sizes)))
            if c["codec"] in DEFAULT:
                self.assertEqual(c["error_feedback"], c["codec"].startswith("topk"))
            if c["codec"] == "none":
                self.assertEqual(c["bytes_per_float"], 4)
        plain = [c for c in f["candidates"] if c["codec"] == "none"]
        best = f["candidates"][0]
        if plain and best["step_s"] >= (1 - f["margin"]) * plain[0]["step_s"]:
            best = plain[0]
        self.assertEqual((f["codec"], f["algorithm"], f["predicted_step_s"]),
                         (best["codec"], best["algorithm"], best["step_s"]))
        self.assertIsNone(f["links"])  # there is one host
        self.assertEqual(f["memory"] is None, ranks == 1)

    # ---- plan ----

    def plan(self, ranks, *words):
        out = self.path("plan.json")
        done = gwrun.ok(ranks, "plan", "--inputs", 50, "--classes", 4, "--layers", "40,30",
                        "--budget", 0.3, "--json", out, *words)
        document = gwrun.read_json(out)
        self.assertEqual("oversubscribed" in done.stdout, document["oversubscribed"])
        self.check_forecast(document["results"], ranks)
        return document["results"], done.stdout

    def test_all_candidates(self):
        """Every algorithm with every codec that it carries; what cannot be combined is left out."""
        for ranks in (1, 2):
            f, _ = self.plan(ranks)
            pairs = {(c["codec"], c["algorithm"]) for c in f["candidates"]}
            self.assertEqual({codec for codec, _ in pairs}, set(DEFAULT))
            for algo in set(gwrun.names("comm/algos.def")) - {"auto", "hier", "file"}:
                self.assertIn(("none", algo), pairs)
            self.assertIn(("fp16", "native"), pairs)
            self.assertNotIn(("qsgd:bits=8", "native"), pairs)
            self.assertEqual([a for codec, a in pairs if codec.startswith("topk")], ["gathersum"])

    def test_every_codec(self):
        codecs = gwrun.names("compress/codecs.def")
        f, _ = self.plan(2, "--codecs", ";".join(codecs), "--algos", "sra;native;gathersum")
        self.assertEqual({c["codec"] for c in f["candidates"]}, set(codecs))

    def test_verify(self):
        f, text = self.plan(2, "--verify", 6, "--steps", 4, "--block", 2)
        measured = [c for c in f["candidates"] if c["measured_step_s"]]
        self.assertEqual(len(measured), 6)
        self.assertEqual({c["codec"] for c in measured}, set(DEFAULT))
        rows = [line.lstrip("* ").split() for line in text.splitlines()]
        rows = [row for row in rows if len(row) == 10 and row[0] in DEFAULT]
        self.assertEqual(len(rows), 6)
        ratios = {(c["codec"], c["algorithm"]): c["step_s"] / c["measured_step_s"]
                  for c in measured}
        for row in rows:
            self.assertAlmostEqual(float(row[9]), ratios[row[0], row[1]], delta=0.00501)
        self.assertIn("prediction farthest off", text)

    def test_verify_the_choice(self):
        f, _ = self.plan(2, "--verify", 1, "--steps", 2)
        measured = [(c["codec"], c["algorithm"]) for c in f["candidates"] if c["measured_step_s"]]
        self.assertEqual(measured, [(f["codec"], f["algorithm"])])
        self.assertIsNotNone(f["measured_step_s"])

    def test_command_runs(self):
        """The recommendation is a command that works, with the options given."""
        for comm in ("allreduce", "iallreduce:bucket=4K", "allreduce:algo=(ring:chunk=4K)"):
            f, text = self.plan(2, "--comm", comm, "--lr", 0.05, "--update", "lazy")
            line = text[text.index("recommended:"):].splitlines()[0]
            words = shlex.split(line.split("gradwire", 1)[1])
            self.assertEqual(words[words.index("--lr") + 1], "0.05")
            self.assertEqual(words[words.index("--update") + 1], "lazy")
            self.assertEqual(words[words.index("--compress") + 1], f["codec"])
            self.assertIn(comm.split(":")[0], words[words.index("--comm") + 1])
            gwrun.clean(2, *words, "--data", SMALL[1], "--steps", 2, "--quiet")

    # ---- auto ----

    def test_train(self):
        for ranks, compress in ((1, "auto"), (2, "auto"),
                                (2, "auto:codecs=(none;fp16),margin=0.1,budget=0.2")):
            run = gwrun.train(ranks, self.path("run"), *SMALL, "--compress", compress,
                              "--overwrite")
            f = run["forecast"]
            self.check_forecast(f, ranks)
            self.assertEqual(run["comm"]["codec"], f["codec"].split(":")[0])
            self.assertEqual(run["comm"]["algorithm"], f["algorithm"])
            self.assertIn(f["why"], run["comm"]["notes"])
            self.assertEqual(f["measured_step_s"], run["results"]["summary"]["wall_s"])
            if "margin" in compress:
                self.assertEqual(f["margin"], 0.1)
                self.assertEqual({c["codec"] for c in f["candidates"]}, {"none", "fp16"})

    def test_same_as_named(self):
        """A run that chose has the bits of a run that was told: measuring leaves no trace."""
        chose = gwrun.train(2, self.path("a"), *SMALL, "--momentum", 0.9, "--comm",
                            "iallreduce:bucket=1K", "--compress", "auto:codecs=(topk:ratio=0.2),budget=0.1")
        told = gwrun.train(2, self.path("b"), *SMALL, "--momentum", 0.9, "--comm",
                           "iallreduce:bucket=1K,algo=gathersum", "--compress", "topk:ratio=0.2")
        self.assertEqual(chose["comm"]["algorithm"], "gathersum")
        self.assertTrue(chose["comm"]["error_feedback"])
        self.assertEqual(chose["results"]["replica_hash"], told["results"]["replica_hash"])
        self.assertIsNone(told["forecast"])

    # ---- forecast ----

    def forecast(self, ranks, *words):
        """A run with --forecast, which must not differ from one without."""
        plain = gwrun.train(ranks, self.path("plain"), *SMALL, *words, "--overwrite")
        run = gwrun.train(ranks, self.path("run"), *SMALL, *words, "--forecast", "--overwrite")
        self.assertIsNone(plain["forecast"])
        self.assertEqual(run["results"]["replica_hash"], plain["results"]["replica_hash"])
        self.assertEqual(run["comm"], plain["comm"])
        f = run["forecast"]
        one, = f["candidates"]
        for key, same in (("predicted_step_s", "step_s"), ("local_s", "local_s"),
                          ("codec_s", "codec_s"), ("exposed_s", "exposed_s")):
            self.assertEqual(f[key], one[same])
        self.close(f["predicted_step_s"], f["local_s"] + f["codec_s"] + f["exposed_s"])
        self.assertEqual(f["measured_step_s"], run["results"]["summary"]["wall_s"])
        self.close(f["ratio"], f["predicted_step_s"] / f["measured_step_s"])
        self.assertEqual((f["algorithm"].split(":")[0], f["ranks"]),
                         (run["comm"]["algorithm"], ranks))
        self.assertEqual((f["why"], f["margin"]), (None, None))
        self.assertIn("simulated", f["how"])
        return f

    def test_forecast(self):
        for ranks, *words in ((1, "--compress", "qsgd"), (2,),
                              (2, "--comm", "allreduce:algo=(ring:chunk=4K)", "--update", "lazy"),
                              (2, "--comm", "iallreduce:bucket=1K", "--compress", "topk+zlib",
                               "--momentum", 0.9, "--weight-decay", 0.01),
                              (2, "--comm", "sparse", "--compress", "topk:ratio=0.1"),
                              (2, "--comm", "sharded", "--update", "lazy"),
                              (2, "--comm", "iallreduce:progress=thread,bucket=4K"),
                              (2, "--compress", "qsgd:bits=4", "--wire-check", "on"),
                              (2, "--profile", "off", "--comm", "iallreduce:algo=halving")):
            with self.subTest(ranks=ranks, words=words):
                f = self.forecast(ranks, *words)
                self.assertEqual(f["error_feedback"], "topk" in " ".join(map(str, words)))

    def test_forecast_refuses(self):
        for words, says in ((["--comm", "ps"], ["--forecast", "iallreduce", "not with ps"]),
                            (["--compress", "topk;layer1=none"], ["--forecast", "layer1"]),
                            (["--compress", "topk", "--momentum", 0.9, "--error-feedback",
                              "momentum"], ["--forecast", "error-feedback=momentum"])):
            self.refused("train", *SMALL, "--forecast", *words, says=says)

    def test_forecast_is_said(self):
        done = gwrun.clean(2, "train", *SMALL, "--forecast")
        self.assertRegex(done.stdout, r"predicted step [0-9.]+ us: [0-9.]+ of the measured\n")

    def test_momentum(self):
        """Error feedback loses accuracy under momentum: not among the defaults there."""
        for momentum, codecs in ((0, DEFAULT), (0.9, DEFAULT[:-1])):
            f, _ = self.plan(2, "--momentum", momentum)
            self.assertEqual({c["codec"] for c in f["candidates"]}, set(codecs))

    def test_sparse(self):
        run = gwrun.train(2, self.path("run"), *SMALL, "--comm", "sparse", "--compress", "auto")
        f = run["forecast"]
        self.check_forecast(f, 2)
        self.assertEqual(f["codec"], "topk:ratio=0.01")  # the strategy carries no other

    def test_bench(self):
        out = self.path("bench.json")
        done = gwrun.ok(2, "bench", "step", "--configs",
                        "allreduce|none;allreduce|auto:codecs=(none;qsgd:bits=4)", "--steps", 6,
                        "--layers", 20, "--inputs", 30, "--json", out)
        named, chose = gwrun.read_json(out)["results"]
        self.assertIsNone(named["forecast"])
        self.check_forecast(chose["forecast"], 2)
        self.assertEqual(chose["compress"], chose["forecast"]["codec"])
        self.assertEqual(chose["forecast"]["measured_step_s"], chose["median_s"])
        self.assertIn(chose["forecast"]["why"], done.stdout)

    # ---- mistakes ----

    def refused(self, *words, says):
        for ranks in (0, 3):
            with self.subTest(ranks=ranks, words=words):
                gwrun.refusal(gwrun.run(ranks, *words), *says)

    def test_refuses(self):
        train = ("train", *SMALL, "--compress")
        self.refused(*train, "auto:codcs=(none)", says=["codcs", "codecs"])
        self.refused(*train, "auto:codecs=(none;fp61)", says=["fp61", "fp16"])
        self.refused(*train, "auto:codecs=(none;;fp16)", says=["codecs", "empty"])
        self.refused(*train, "auto:codecs=(none;qsgd:bits=5000)", says=["bits=5000"])
        self.refused(*train, "auto:margin=2", says=["margin=2"])
        self.refused(*train, "auto:algos=(sar)", says=["sar", "sra"])
        self.refused(*train, "auto:algos=(sra)", "--comm", "allreduce:algo=ring",
                     says=["algos", "ring"])
        self.refused(*train, "auto", "--comm", "gossip", says=["predicted with", "gossip"])
        self.refused(*train, "auto:codecs=(none)", "--comm", "sparse", says=["dense"])
        self.refused(*train, "auto:codecs=(qsgd)", "--comm", "allreduce:algo=native",
                     says=["native", "qsgd"])
        self.refused(*train, "automatic", says=["automatic"])
        self.refused("plan", "--compress", "fp16", says=["--codecs"])
        self.refused("plan", "--codecs", "fp61", says=["fp61", "fp16"])
        self.refused("plan", "--verify", "99", says=["verify=99"])
        self.refused("plan", "--json", self.path("no/plan.json"), says=["no"])
        self.refused("plan", "word", says=["word"])
        self.refused("plan", "--comm", "iallreduce:bucket=4", says=["bucket"])
