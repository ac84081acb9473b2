"""Checkpoints and restarts: a resumed run ends with the same bits as one that never stopped, or says in
one line why it cannot."""

import os
import shutil

import gwrun
import identities
from test_mesh_resume import folder_of, forged, put_rank, rank_file

SMALL = ["--data", "synthetic:samples=600,features=20,classes=4,test=0.2", "--layers", "12,8",
         "--batch", 20, "--epochs", 2, "--ceilings", "off", "--overhead", 0, "--profile", "timers"]
EVERY = ["--checkpoint-every", 1000]  # so at the end alone
HALF = 30  # steps: within the second epoch of 24
# What differs from run to run.
TIMES = ("elapsed_s", "train_s", "test_s")


def epochs(out):
    return [{k: v for k, v in row.items() if k not in TIMES} for row in gwrun.rows(out, "epochs.csv")]


def steps_of(out):
    """(rank, step, loss), in the file's order."""
    return [(row["rank"], row["step"], row["loss"]) for row in gwrun.batches(out)]


class Checkpoint(gwrun.Case):
    def setUp(self):
        super().setUp()
        self.whole, self.out = self.path("whole"), self.path("run")

    def folders(self):
        return sorted(os.listdir(os.path.join(self.out, "model.ckpt.d")))

    def begin(self, ranks, *words):
        """A run that ends in mid-epoch."""
        gwrun.train(ranks, self.out, *SMALL, *EVERY, *words, "--steps", HALF)

    def resume(self, ranks, *words):
        """What the rest of it says."""
        done = gwrun.ok(ranks, "train", "--out", self.out, *SMALL, "--resume", "auto", *words)
        return done.stdout

    def refused(self, ranks, *words):
        return gwrun.refusal(gwrun.run(0 if ranks == 1 else ranks, "train", *SMALL, *words))

    def check_bits(self, ranks, *words):
        for out in (self.whole, self.out):
            shutil.rmtree(out, ignore_errors=True)
        gwrun.train(ranks, self.whole, *SMALL, *words)
        self.begin(ranks, *words)
        said = self.resume(ranks, *words)
        self.assertIn(f"step-{HALF:012d}: {HALF} steps done, in epoch 2", said)
        self.assertEqual(epochs(self.out), epochs(self.whole))
        self.assertEqual(steps_of(self.out), steps_of(self.whole))
        codec = os.path.join(self.out, "codec.csv")
        if os.path.exists(codec):
            self.assertEqual(gwrun.read(codec), gwrun.read(os.path.join(self.whole, "codec.csv")))

    def test_to_the_bit(self):
        """As test_correction.c for the exchange alone, with all that a run adds: the place in the
        epoch, rates that depend on the step, an optimizer state that is spread over the ranks, samples
        for codec.csv, and choices made at the start."""
        for ranks, *words in (
                (1, "--momentum", 0.9, "--lr-warmup", 40, "--validation", 0.2),
                (2, "--comm", "delayed", "--compress", "topk:ratio=0.1,warmup=40", "--update",
                 "lazy"),
                (2, "--comm", "sparse", "--compress", "topk", "--compress-stats", 4),
                (2, "--comm", "local:period=7,momentum=1", "--momentum", 0.5, "--compress", "onebit"),
                # In the middle of a round; with an exchange under way; both.
                (2, "--comm", "diloco:period=7,outer-lr=1,outer-momentum=0,decay=0.95", "--compress", "chunktopk"),
                (2, "--comm", "diloco:period=8,fragments=2,tau=3", "--compress", "e3m0", "--update", "lazy"),
                (3, "--comm", "noloco:period=7", "--momentum", 0.5),
                (3, "--comm", "zerooneadam:freeze=9,kappa=3,double=10,local=7", "--compress", "onebit", "--lr", 1e-4),
                (3, "--comm", "sharded", "--momentum", 0.9, "--compress", "qsgd:bits=4",
                 "--error-feedback", "on", "--data-layout", "sharded"),
                (2, "--comm", "ps:dedicated=1", "--momentum", 0.9)):
            with self.subTest(ranks=ranks, words=words):
                self.check_bits(ranks, *words)

    def test_what_is_drained_is_counted(self):
        """The last checkpoint waits for an exchange outside any step: what that sends is the run's."""
        for comm in ("delayed:algo=sra", "diloco:period=5,tau=2,algo=sra"):
            with self.subTest(comm=comm):
                gwrun.train(2, self.out, *SMALL, *EVERY, "--comm", comm, "--overwrite")
                identities.traffic(self, self.out)

    def test_choices_are_taken_again(self):
        """The algorithm that was the fastest before is used again: another would add in another
        order."""
        words = ["--comm", "allreduce:algo=(auto:budget=0.01)"]
        self.begin(2, *words)
        table = os.path.join(self.out, "algo.csv")
        chosen = gwrun.read(table)
        gwrun.train(2, self.whole, *SMALL, "--comm", f"allreduce:algo=(auto:table={table})")
        self.assertIn("as before the restart", self.resume(2, *words))
        self.assertEqual(gwrun.read(table), chosen)
        self.assertEqual(epochs(self.out), epochs(self.whole))

    def test_damaged_is_passed_over(self):
        """The checkpoint before the damaged one is used; if there is none, the run starts anew."""
        gwrun.train(1, self.whole, *SMALL)
        self.begin(1)
        gwrun.train(1, self.out, *SMALL, *EVERY, "--resume", "auto", "--steps", HALF + 5)
        old, new = self.folders()
        gwrun.flip(self.path("run", "model.ckpt.d", new, "rank-00000.gw"), 1000)
        said = self.resume(1, *EVERY)
        self.assertIn(f"{new}/rank-00000.gw", said)
        self.assertEqual(len(gwrun.warnings(said)), 1, said)
        self.assertIn(f"{old}: {HALF} steps done", said)
        self.assertEqual(epochs(self.out), epochs(self.whole))
        for folder in self.folders():
            gwrun.flip(self.path("run", "model.ckpt.d", folder, "manifest"), 30)
        self.assertIn("holds no complete checkpoint",
                      self.refused(1, "--resume", self.out))
        error = self.refused(1, "--resume", "auto", "--out", self.out)
        self.assertIn("all checkpoints in", error)
        self.assertIn("/manifest: ", error)  # why they cannot be used

    def test_forged(self):
        """Changed numbers by which ranks decide together: values that would make the ranks diverge or
        leave an array are refused."""
        for comm, ranks, field, value in (("gossip:topology=exponential", 3, b"steps", 2**64 - 1),
                                          ("local:period=7", 2, b"steps", HALF + 1),
                                          ("local:period=7", 2, b"agreed", HALF + 1),
                                          ("allreduce", 2, b"ticket", 5)):
            with self.subTest(comm=comm, field=field):
                shutil.rmtree(self.out, ignore_errors=True)
                self.begin(ranks, "--comm", comm)
                folder = folder_of(self.out)
                put_rank(folder, 1, forged(rank_file(folder, 1), field, 0, value))
                said = self.refused(ranks, "--comm", comm, "--out", self.out, "--resume", "auto")
                self.assertRegex(said, "do not belong together|steps done, replicas agreed")

    def test_nothing_to_go_on_from(self):
        said = self.resume(1)
        self.assertIn("no checkpoint in", said)
        self.assertIn("starts at the beginning", said)
        self.assertEqual(len(epochs(self.out)), 2)

    def test_other_ranks(self):
        """Momentum is collected from its owners, so the curve is the serial one; what cannot be kept is
        reported, one line each."""
        words = ["--comm", "sharded", "--momentum", 0.9]
        gwrun.train(1, self.whole, *SMALL, *words)
        self.begin(2, *words)
        said = self.resume(1, *words, "--resume-strict")
        self.assertNotIn("start anew", said)
        for mine, other in zip(gwrun.losses(self.out), gwrun.losses(self.whole), strict=True):
            self.assertAlmostEqual(mine, other, delta=1e-4 * max(1, other))
        lossy = ["--overwrite", "--comm", "local:period=4", "--compress", "topk"]
        self.begin(2, *lossy)
        error = self.refused(3, "--out", self.out, *lossy[1:], "--resume", "auto",
                             "--resume-strict")
        self.assertIn("--resume-strict: resume: 2 ranks then, 3 now: residuals", error)
        said = self.resume(3, *lossy[1:])
        for part in ("2 ranks then, 3 now: residuals of error feedback start anew",
                     "what --comm local carried", "parameters differed over the ranks"):
            self.assertIn(part, said)

    def test_warm_up_goes_on(self):
        """With another number of ranks, too, the warm-up of a codec ends when it would have ended."""
        words = ["--compress", "topk:ratio=0.01,warmup=20", "--error-feedback", "off"]
        self.begin(2, *words)
        self.resume(3, *words, "--resume-strict")
        sent = [int(row["wire_bytes"]) for row in gwrun.batches(self.out) if row["rank"] == "0"]
        self.assertLess(max(sent[HALF:]), sent[0] / 3)

    def test_momentum_outlives_a_start_without_steps(self):
        words = [*EVERY, "--momentum", 0.9]
        gwrun.train(2, self.whole, *SMALL, *words)
        self.begin(2, "--momentum", 0.9)
        self.resume(1, *words, "--steps", HALF)  # concluded again, by one rank
        self.resume(2, *words)
        self.assertEqual(epochs(self.out)[-1]["replica_hash"],
                         epochs(self.whole)[-1]["replica_hash"])

    def test_refusals(self):
        """Each a line; the run that is there stays as it is."""
        self.begin(1)
        before = sorted(os.listdir(self.out)), self.folders()
        for words, part in (
                (["--seed", 2], "--seed '1', and here it is '2'"),
                (["--layers", "12"], "--layers '12,8'"),
                (["--batch", 10], "global batches of 20 samples"),
                (["--data", "synthetic:samples=600,features=20,classes=4,test=0.2,seed=9"],
                 "other data"),
                (["--steps", HALF - 1], f"{HALF} steps done already"),
                (["--epochs", 1], "in epoch 2 already")):
            error = self.refused(1, "--out", self.out, "--resume", "auto", *words)
            self.assertIn(part, error)
        self.assertIn("holds a run", self.refused(1, "--out", self.out))
        self.assertIn("no such folder", self.refused(1, "--resume", self.path("nowhere")))
        for words, part in (
                (["--checkpoint-every", 5], "needs --out"),
                (["--out", self.path("x"), "--checkpoint-every", "5m"], "steps, e.g. 500"),
                (["--out", self.path("x"), "--checkpoint-keep", 3], "--checkpoint-every"),
                (["--resume", "auto"], "needs --out"),
                (["--out", self.out, "--resume", "auto", "--overwrite"], "--overwrite"),
                (["--resume-strict"], "--resume")):
            self.assertIn(part, self.refused(1, *words))
        self.assertEqual((sorted(os.listdir(self.out)), self.folders()), before)

    def test_into_another_folder(self):
        """Resume from a run's folder, with its history; the checkpoint also serves as a model."""
        self.begin(1)
        other = self.path("other")
        gwrun.train(1, other, *SMALL, "--resume", self.out)
        self.assertEqual([step for _, step, _ in steps_of(other)],
                         [str(step) for step in range(1, 49)])
        self.assertEqual(len(epochs(self.out)), 2)
        model = self.path("run", "model.ckpt.d", f"step-{HALF:012d}", "model.gw")
        gwrun.ok(1, "eval", "--model", model, *SMALL[:2])

    def test_what_has_changed_is_told(self):
        """Even if nothing is dropped: times and rates before and after differ in kind."""
        self.begin(2, "--comm", "allreduce")
        said = self.resume(2, "--comm", "iallreduce", "--lr", 0.02, "--resume-strict")
        told = ["--comm 'allreduce' then, 'iallreduce' now", "--lr '0.1' then, '0.02' now"]
        run = gwrun.run_json(self.out)
        self.assertEqual(run["resumed"]["changed"], told)
        self.assertEqual(run["interruptions"][-1]["changed"], told)
        for line in told:
            self.assertIn(f"resume: changed: {line}\n", said)
        shutil.rmtree(self.out)
        self.begin(2, "--compress", "onebit")
        self.resume(1, "--compress", "none", *EVERY)
        self.resume(1, "--compress", "none", "--epochs", 4)  # it has dropped nothing itself
        entries = gwrun.run_json(self.out)["interruptions"]
        self.assertEqual([bool(entry["dropped"]) for entry in entries], [True, False])
        shown = gwrun.run(1, "show", self.out).stdout
        for entry in entries:
            for what in ("changed", "dropped"):
                for line in entry[what]:
                    self.assertIn(f"      {what}: {line}\n", shown)

    def test_back_to_an_older_one(self):
        """Later checkpoints belong to rows that are cut off, so they must not be found again."""
        self.begin(1)
        gwrun.train(1, self.out, *SMALL, *EVERY, "--resume", "auto", "--steps", HALF + 5)
        old, later = self.folders()
        with open(self.path("run", "epochs.csv"), "rb+") as file:
            file.write(b"no column")
        path = self.path("run", "model.ckpt.d", old)
        self.assertIn("columns", self.refused(1, "--out", self.out, "--resume", path))
        self.assertEqual(self.folders(), [old, later])
        with open(self.path("run", "epochs.csv"), "rb+") as file:
            file.write(b"epoch,ste")
        done = gwrun.run(1, "train", "--out", self.out, *SMALL, "--resume", path, "--steps", HALF)
        self.assertIn("1 checkpoint that the run wrote later is removed", done.stdout)
        self.assertEqual(self.folders(), [old])
        self.resume(1)
        self.assertEqual([int(step) for _, step, _ in steps_of(self.out)], list(range(1, 49)))

    def test_run_within_another(self):
        """Its checkpoint is none of the outer run, whose rows stay."""
        self.begin(1)
        inner = self.path("run", "inner")
        shutil.copytree(self.out, inner)
        shutil.rmtree(self.path("run", "model.ckpt.d"))
        self.assertIn("holds a run already",
                      self.refused(1, "--out", self.out, "--resume", inner))
        self.assertEqual(len(steps_of(self.out)), HALF)

    def test_while_training_goes_on(self):
        """Many checkpoints: written during the steps, pruned, their time in the ledger; the run equals
        one without any."""
        words = ["--momentum", 0.5, "--epochs", 12]
        gwrun.train(2, self.whole, *SMALL, *words)
        gwrun.train(2, self.out, *SMALL, *words, "--checkpoint-every", 3, "--checkpoint-keep", 1)
        self.assertEqual(self.folders(), [f"step-{24 * 12:012d}"])
        self.assertEqual(epochs(self.out), epochs(self.whole))
        taken = [row["rank"] for row in gwrun.batches(self.out) if float(row["checkpoint_s"]) > 0]
        self.assertGreaterEqual(taken.count("0"), 1)
        self.assertEqual(taken.count("0"), taken.count("1"))
