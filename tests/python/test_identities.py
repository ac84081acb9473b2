"""The ledger's identities on real runs: sums, waiting against transfer, who sent how much to whom,
and a delay of known length that comes back as the others' waiting."""

import os
import tempfile
import unittest

import gwrun
import identities
from identities import seconds

STEPS = 60
SMALL = ("--data", "synthetic:samples=3840,features=64,classes=10", "--layers", "96,64")
BLOCKING = ("allreduce", "allreduce:algo=ring", "ps", "powersgd:rank=2")
OVERLAPPED = ("iallreduce:bucket=8K", "iallreduce:progress=thread,bucket=24K", "delayed", "sharded",
              "gossip", "local:period=4")


class Identities(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.TemporaryDirectory()
        self.addCleanup(self.dir.cleanup)
        self.out = os.path.join(self.dir.name, "run")

    def train(self, ranks, comm, *words):
        return gwrun.train(ranks, self.out, "--overwrite", "--collectives", *SMALL, "--steps", STEPS,
                           "--comm", comm, *words, ceilings=None)

    def check(self, ranks, blocking):
        identities.leaves(self, self.out, blocking)
        identities.gaps(self, self.out)
        identities.waits(self, self.out)
        identities.traffic(self, self.out)
        if blocking:
            identities.collectives(self, self.out, ranks)
            identities.waits_are_the_exchanges(self, self.out)

    def test_blocking(self):
        for ranks in (1, 2, 3):
            for comm in BLOCKING if ranks == 2 else BLOCKING[:2]:
                with self.subTest(ranks=ranks, comm=comm):
                    self.train(ranks, comm)
                    self.check(ranks, ranks > 1)

    def test_compressed(self):
        self.train(2, "allreduce:algo=sra", "--compress", "qsgd:bits=8")
        self.check(2, True)

    def test_overlapped(self):
        for comm in OVERLAPPED:
            with self.subTest(comm=comm):
                self.train(2, comm)
                self.check(2, False)
        for mode in ("bucket=8K", "progress=thread,algo=sra,order=priority,bucket=8K,credit=8K"):
            with self.subTest(lazy=mode):
                self.train(2, f"iallreduce:{mode}", "--update", "lazy")
                self.check(2, False)

    def test_lazy_steps_overlap(self):
        """A vote between two steps settles nothing: the second half of each exchange is sent in
        the next step, of the last one in its own."""
        gwrun.train(2, self.out, *SMALL, "--steps", 6, "--update", "lazy", "--inject-skew",
                    "0:0.05", "--comm", "iallreduce:algo=sra,progress=none")
        for rows in identities.by_rank(gwrun.batches(self.out)):
            sent = [int(row["wire_bytes"]) for row in rows]
            whole = sum(sent) / len(sent)
            self.assertEqual(sent, [whole / 2] + [whole] * 4 + [whole * 3 / 2])

    def test_many_exchanges(self):
        """Hundreds a step: the flushes come closer, and nothing is lost."""
        self.train(2, "iallreduce:bucket=1K", "--data", "fashion-mnist", "--layers", "256,128")
        identities.waits(self, self.out)
        a_step = len(identities.exchanges(self.out)) / STEPS
        self.assertGreater(a_step, 500)

    def test_neighbours_only(self):
        """A ring on three ranks sends to the right; gossip waits for neighbours alone."""
        self.train(3, "allreduce:algo=ring")
        sent = identities.traffic(self, self.out)
        peers = {(r["rank"], r["peer"]) for r in identities.rows_of(self.out, "matrix.csv")}
        self.assertEqual(peers, {("0", "1"), ("1", "2"), ("2", "0")})
        for rank, rows in enumerate(identities.by_rank(gwrun.batches(self.out))):
            self.assertEqual(sum(int(r["wire_bytes"]) for r in rows), sent[str(rank)])

    # ---- over a mesh ----

    def test_mesh(self):
        """Each dimension's figures, and its bytes and messages by formula."""
        widths = [64, 96, 64, 10]
        for sizes, micro, words in (
                ((1, 2, 1), 4, ("--timetable", "zb", "--recompute", "on")),
                ((1, 3, 1), 3, ("--timetable", "gpipe", "--stages", "1,1,1")),
                ((1, 1, 2), 1, ("--tensor-chunks", 2)),
                ((2, 2, 1), 2, ("--stages", "1,2")),
                ((2, 1, 2), 1, ()),
                ((1, 2, 2), 2, ("--stages", "2,1"))):
            with self.subTest(sizes=sizes, micro=micro, words=words):
                mesh = ",".join(map("{}={}".format, identities.DIMENSIONS, sizes))
                ranks = sizes[0] * sizes[1] * sizes[2]
                self.train(ranks, "allreduce", "--mesh", mesh, "--microbatches", micro, *words)
                for of_all in (identities.leaves, identities.gaps, identities.waits,
                               identities.traffic, identities.dimensions, identities.bubble):
                    of_all(self, self.out, *([False] if of_all is identities.leaves else []))
                run = identities.run_of(self.out)
                expected = identities.mesh_bytes(sizes, micro, 64, widths, run["mesh"]["layers"])
                for dim, figures in run["results"]["summary"]["dimensions"].items():
                    self.assertEqual((round(figures["bytes"] * ranks),
                                      round(figures["messages"] * ranks)), expected[dim], dim)
                recomputed = run["results"]["summary"]["phases"]["recompute_s"]
                self.assertEqual(recomputed > 0, "--recompute" in words)

    def test_source_of_bytes(self):
        """Modelled are those of MPI's own collectives, along each dimension."""
        for ranks, comm, words, source in (
                (2, "allreduce:algo=ring", ("tensor=2",), "modelled: .* [(]tensor[)]"),
                (2, "allreduce", ("tensor=2", "--tensor-algo", "ring"), "measured: "),
                (4, "allreduce:algo=ring", ("data=2,pipe=2",), "measured: "),
                (4, "allreduce", ("data=2,tensor=2", "--tensor-algo", "ring"),
                 "modelled: .* [(]data[)]")):
            with self.subTest(comm=comm, words=words):
                self.train(ranks, comm, "--steps", 3, "--mesh", *words)
                self.assertRegex(identities.run_of(self.out)["sources"]["wire_bytes"], source)
                modelled = {row["dimension"] for row in identities.rows_of(self.out, "matrix.csv")
                            if row["source"] == "modelled" and row["bytes"] != "0"}
                self.assertEqual(modelled, {dim for dim in identities.DIMENSIONS
                                            if f"({dim})" in source.replace("[", "").replace("]", "")})

    def test_delay_of_a_stage(self):
        """It comes back as what the next stage waits for hops: in each step as long as the delayed one
        was later to send the first of them."""
        self.train(2, "allreduce", "--mesh", "pipe=2", "--microbatches", 4, "--inject-skew", "0:1ms")
        hops = {}
        for row in identities.rows_of(self.out, "collectives.csv"):
            if row["dimension"] == "pipe":
                hops.setdefault((row["rank"], row["step"]), []).append(row)
        late, other = identities.by_rank(gwrun.batches(self.out))
        for a, b in zip(late, other):
            self.assertGreaterEqual(seconds(a, "data"), 1e-3)
            first = min(hops["1", b["step"]], key=lambda row: seconds(row, "start"))
            sent = min(seconds(row, "start") for row in hops["0", b["step"]]
                       if row["lane"] == "activations")
            self.assertGreaterEqual(sent, seconds(a, "t_start") + 1e-3 - 1e-8)
            blocked = seconds(first, "block") if first["block_s"] else seconds(first, "done")
            self.assertAlmostEqual(seconds(first, "waiting"), max(sent - blocked, 0),
                                   delta=float(b["clock_err_s"]) + 1e-7)
            waited = sum(seconds(row, "waiting") for row in hops["1", b["step"]])
            self.assertAlmostEqual(seconds(b, "pipe_skew"), waited, delta=1e-9)

    # ---- a delay of known length ----

    def predicted(self, rows, other):
        """By how much `other` arrived later, from the begins of the batches and the phases before
        the exchange: no figure of the exchange is in it."""
        def before(row):
            return sum(seconds(row, n) for n in ("t_start", "data", "forward", "backward"))
        return before(other) - before(rows)

    def test_skew_comes_back(self):
        """Of rank 1's delay rank 0 waits: in each batch, whatever the machine does meanwhile, what the
        phases before the exchange say. They end before it begins, and what lies between is in the
        batch's other columns. How near that is to the delay, `gradwire bench ledger --skew` says."""
        for skew in (200e-6, 1e-3):
            with self.subTest(skew=skew):
                self.train(2, "allreduce", "--steps", 300, "--inject-skew", f"1:{skew}")
                pairs = list(zip(*identities.by_rank(gwrun.batches(self.out))))[10:]
                for _, late in pairs:
                    self.assertGreaterEqual(seconds(late, "data"), skew)
                for a, b in pairs:
                    off = seconds(a, "wait_skew") - max(self.predicted(a, b), 0)
                    self.assertLessEqual(abs(off), identities.between(a) + identities.between(b) + 1e-6)

    def test_straggler_is_named(self):
        """By docs/measurement.md's rule, in run.json and in the last lines. Mostly rank 1, but on a busy
        machine rank 0 may be held up for longer than any injected delay."""
        done = gwrun.run(2, "train", *SMALL, "--steps", 16, "--inject-skew", "1:200ms", "--overhead",
                         0, "--out", self.out)
        self.assertEqual(done.returncode, 0, done.stderr)
        results = identities.run_of(self.out)["results"]
        late = max(results["ranks"], key=lambda rank: rank["waited_for_s"])
        self.assertGreater(late["waited_for_s"], 0)
        of_step = late["waited_for_s"] / late["wall_s"]
        if late["last_share"] < 0.5 or of_step < 0.05:
            self.assertIsNone(results["straggler"])
            self.assertNotIn("holds the others up", done.stdout)
        else:
            self.assertEqual(results["straggler"], {
                "rank": late["rank"], "last_share": late["last_share"],
                "waited_s": late["waited_for_s"], "of_step": results["straggler"]["of_step"]})
            self.assertAlmostEqual(results["straggler"]["of_step"], of_step)
            self.assertIn(f"rank {late['rank']} holds the others up", done.stdout)
        self.assertEqual(identities.run_of(self.out)["options"]["inject-skew"], "1:200ms")

    def test_alone_nobody_waits(self):
        self.train(1, "allreduce")
        results = identities.run_of(self.out)["results"]
        self.assertIsNone(results["straggler"])
        self.assertEqual(results["ranks"][0]["waiting_s"], 0)
        self.assertEqual(identities.rows_of(self.out, "matrix.csv"), [])

    def test_not_measured_is_blank(self):
        gwrun.train(2, self.out, *SMALL, "--steps", 20, "--profile", "off")
        for row in gwrun.batches(self.out):
            self.assertEqual((row["wait_skew_s"], row["transfer_s"], row["clock_err_s"]),
                             ("", "", ""))
        results = identities.run_of(self.out)["results"]
        self.assertIsNone(results["traffic"])
        self.assertIsNone(results["summary"]["waiting_s"])
        self.assertFalse(os.path.exists(os.path.join(self.out, "matrix.csv")))


if __name__ == "__main__":
    unittest.main()
