"""gradwire train --check reports what a run would be refused for, without a run. test_bad_input.py
compares the refusals themselves."""

import os

import gwrun

SMALL = ("--data", "synthetic:samples=300,features=16,classes=4", "--batch", 30)


class Check(gwrun.Case):
    def setUp(self):
        super().setUp()
        self.out = self.path("deep", "run")

    def check(self, ranks, *words, **more):
        return gwrun.run(ranks, "train", "--check", *SMALL, *words, **more)

    def test_every_strategy(self):
        for ranks in (1, 2):
            for name in gwrun.names("comm/strategies.def"):
                done = self.check(ranks, "--comm", name, "--compress", "fp16")
                run = gwrun.run(ranks, "train", *SMALL, "--steps", 1, "--quiet", "--comm", name,
                                "--compress", "fp16")
                with self.subTest(ranks=ranks, name=name):
                    self.assertEqual((done.returncode, done.stderr), (run.returncode, run.stderr))

    def test_says_one_line(self):
        said = gwrun.quiet(self.check(2, "--layers", "8"))
        self.assertEqual(len(said.splitlines()), 1)
        self.assertIn("172 parameters; 2 ranks x 1 thread", said)
        self.assertEqual(gwrun.quiet(self.check(2, "--quiet")), "")

    def test_writes_nothing(self):
        everything = ("--out", self.out, "--trace", "--collectives", "--overhead", 50,
                      "--compress-stats", 1, "--comm", "iallreduce:algo=sra", "--compress", "qsgd")
        cache = self.path("cache")
        gwrun.quiet(self.check(2, *everything, env={**os.environ, "XDG_CACHE_HOME": cache}))
        self.assertEqual(os.listdir(self.dir), [])

    def test_older_run_stays(self):
        gwrun.train(1, self.out, *SMALL, "--epochs", 1)
        before = {name: os.stat(os.path.join(self.out, name)).st_mtime_ns
                  for name in os.listdir(self.out)}
        for overwrite in ([], ["--overwrite"]):
            gwrun.quiet(self.check(2, "--out", self.out, *overwrite))
        after = {name: os.stat(os.path.join(self.out, name)).st_mtime_ns
                 for name in os.listdir(self.out)}
        self.assertEqual(after, before)

    def test_what_only_the_ranks_show(self):
        for words, ranks, says in ((["--comm", "ps:dedicated=1"], 1, "start more ranks"),
                                   (["--inject-skew", "2:1ms"], 2, "rank 2"),
                                   (["--local-batch", 2**30], 2, "below 2^31"),
                                   (["--batch", 301], 2, "301")):
            done = gwrun.run(ranks, "train", "--check", *SMALL[:2], *words)
            with self.subTest(words=words):
                gwrun.refusal(done, says)

    def test_files_that_options_name(self):
        bad = self.path("bad")
        gwrun.write(bad, "nonsense\n")
        for words in (["--ceilings", bad, "--out", self.out],
                      ["--comm", f"allreduce:algo=(auto:table={bad})"], ["--papi-group", bad]):
            done = self.check(2, *words)
            run = gwrun.run(2, "train", *SMALL, *words)
            with self.subTest(words=words):
                self.assertEqual((done.returncode, done.stderr), (2, run.stderr))

    def test_auto(self):
        for words, status in ((["--compress", "auto"], 0),
                              (["--compress", "auto:codecs=topk", "--momentum", 0.9], 0),
                              (["--compress", "auto", "--comm", "iallreduce:bucket=4"], 2)):
            done = self.check(2, *words)
            with self.subTest(words=words):
                self.assertEqual(done.returncode, status, done.stderr)
