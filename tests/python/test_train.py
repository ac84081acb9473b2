"""What a run writes and how it ends: the folder, sums of the ledger, limits, a killed rank."""

import os

import faultcase
import gwrun
import identities

SMALL = ("--data", "synthetic:samples=3000,features=64,classes=5", "--layers", "32")


class Train(gwrun.Case):

    def test_without_model(self):
        run = gwrun.train(1, self.out, "--data", "synthetic:samples=300,features=16,classes=4",
                          "--epochs", 1, "--save-model", "off")
        self.assertEqual(sorted(os.listdir(self.out)),
                         ["batches.csv", "epochs.csv", "matrix.csv", "run.json"])
        self.assertEqual(run["options"]["save-model"], "off")

    def test_folder(self):
        run = gwrun.train(2, self.out, "--epochs", 1, "--steps", 200, "--comm",
                          "iallreduce:bucket=256K", "--compress", "qsgd:bits=8", "--validation",
                          "0.1", "--trace")
        self.assertEqual(sorted(os.listdir(self.out)),
                         ["batches.csv", "epochs.csv", "matrix.csv", "model.gw", "run.json",
                          "trace.json"])
        self.assertEqual(run["data"]["train"], 54000)
        self.assertEqual(run["parameters"], 235146)
        self.assertIsNone(run["link"])
        self.assertEqual((run["machine"]["nodes"], run["machine"]["ranks_on_this_node"]), (1, 2))
        self.assertEqual(run["comm"], {"strategy": "iallreduce", "algorithm": "sra",
                                       "codec": "qsgd", "error_feedback": False, "clip": None, "unmet": [],
                                       "encoded": run["comm"]["encoded"], "notes": None, "layers": None, "warning": None})
        self.assertIn("mpi", run["mpi"]["library"].lower())
        self.assertEqual(run["options"]["compress"], "qsgd:bits=8")
        self.assertEqual(run["results"]["stopped_by"], "steps")
        self.assertGreater(run["results"]["test_accuracy"], 0.6)
        self.assertGreater(len(gwrun.read_json(self.out, "trace.json")["traceEvents"]), 1000)

    def test_ledger(self):
        """The parts of every batch add up to its wall time."""
        gwrun.train(2, self.out, "--steps", 300, "--compress", "qsgd:bits=8")
        rows = gwrun.batches(self.out)
        self.assertEqual([(int(r["step"]), int(r["rank"])) for r in rows],
                         [(step, rank) for step in range(1, 301) for rank in (0, 1)])
        identities.leaves(self, self.out, True)
        for row in rows:
            self.assertEqual(int(row["logical_bytes"]), 4 * 235146)
            # two halves of the arena, a 4-byte scale for each bucket of 512 8-bit codes
            self.assertEqual(int(row["wire_bytes"]), 2 * (117573 + 4 * 230))
            self.assertEqual(int(row["messages"]), 2)

    def test_overlap_is_seen(self):
        """Rank 0's first exchange waits for rank 1 while it computes two layers more."""
        run = gwrun.train(2, self.out, *SMALL, "--layers", "64,64,64", "--epochs", 4, "--comm",
                          "iallreduce:bucket=4K", "--inject-skew", "1:1ms")
        self.assertGreater(run["results"]["summary"]["hidden_s"], 0)

    def test_epochs(self):
        """Training time continues from epoch to epoch and excludes evaluation."""
        run = gwrun.train(2, self.out, *SMALL, "--epochs", 3)
        rows = gwrun.rows(self.out, "epochs.csv")
        train = [float(row["train_s"]) for row in rows]
        self.assertEqual(train, sorted(set(train)))
        for row, seconds in zip(rows, train):
            self.assertLess(seconds, float(row["elapsed_s"]))
        self.assertLessEqual(train[-1], run["results"]["train_s"] * (1 + 1e-6))
        own = sum(float(row["wall_s"]) for row in gwrun.batches(self.out) if row["rank"] == "0")
        self.assertAlmostEqual(train[-1] / own, 1, places=6)

    def test_limits(self):
        run = gwrun.train(2, self.out, *SMALL, "--epochs", 100000, "--time-limit", 1)
        self.assertEqual(run["results"]["stopped_by"], "time-limit")

    def test_sharded_learns_alike(self):
        for batch in (64, 50):
            run = gwrun.train(3, self.out, "--overwrite", "--data-layout", "sharded", "--steps",
                              300, "--batch", batch)
            self.assertGreater(run["results"]["test_accuracy"], 0.70)

    def test_options_take_effect(self):
        base = gwrun.train(1, self.out, *SMALL, "--steps", 30)["results"]["train_loss"]
        for words in (("--seed", 2), ("--activation", "tanh"), ("--activation", "sigmoid"),
                      ("--init", "xavier"), ("--lr", 0.01), ("--lr-warmup", 20), ("--layers", ""),
                      ("--momentum", 0.5), ("--weight-decay", 0.1), ("--local-batch", 32)):
            loss = gwrun.train(1, self.out, "--overwrite", *SMALL, "--steps", 30,
                               *words)["results"]["train_loss"]
            self.assertNotEqual(loss, base, words)
        one = gwrun.train(2, self.out, "--overwrite", *SMALL, "--steps", 30, "--lr", 0.1)
        two = gwrun.train(2, self.out, "--overwrite", *SMALL, "--steps", 30, "--lr", 0.05,
                          "--lr-scaling", "linear")
        self.assertEqual(one["results"]["train_loss"], two["results"]["train_loss"])

    def test_oversubscribed_is_said(self):
        done = gwrun.ok(1, "train", *SMALL, "--steps", "2", "--threads", str(os.cpu_count() + 1))
        self.assertIn("oversubscribed", done.stdout)
        self.assertNotIn("oversubscribed", gwrun.run(1, "train", *SMALL, "--steps", "2").stdout)

    def test_eval(self):
        run = gwrun.train(2, self.out, "--steps", 200)
        for ranks in (1, 2):
            done = gwrun.ok(ranks, "eval", "--model", self.out)
            lines = done.stdout.splitlines()
            self.assertEqual(lines[0].split(",")[0],
                             f"accuracy {run['results']['test_accuracy']:.4f}")
            counts = [list(map(int, line.split()[1:])) for line in lines[-10:]]
            self.assertEqual([sum(row) for row in counts], [1000] * 10)
            diagonal = sum(counts[c][c] for c in range(10))
            self.assertAlmostEqual(diagonal / 10000, run["results"]["test_accuracy"], places=4)

    def test_killed_rank(self):
        """The whole job ends at once, and no file is there in part."""
        with faultcase.Started(3, *SMALL, "--epochs", 100000, "--out", self.out, log=self.path("log")) as job:
            job.await_line("epoch 1/")
            job.kill(1)
            self.assertNotEqual(job.status(), 0)
        self.assertEqual(os.listdir(self.out), [".lock"])  # which nobody holds any more
