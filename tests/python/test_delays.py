"""A delay of known length comes back as the others' waiting. The ranks have the machine to themselves
and poll as a user's do."""


import gwrun
import identities
from identities import seconds

SMALL = ("--data", "synthetic:samples=3840,features=64,classes=10", "--layers", "96,64")


class Delays(gwrun.Case):

    def train(self, comm, *words):
        return gwrun.train(2, self.out, "--overwrite", "--collectives", *SMALL, "--steps", 60,
                           "--comm", comm, *words, ceilings=None)

    def test_delay_of_a_stage(self):
        """It comes back as what the next stage waits for hops: in each step as long as the delayed one
        was later to send the first of them."""
        self.train("allreduce", "--mesh", "pipe=2", "--microbatches", 4, "--inject-skew", "0:1ms")
        hops = {}
        for row in gwrun.rows(self.out, "collectives.csv"):
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

    def predicted(self, rows, other):
        """By how much `other` arrived later, from the begins of the batches and the phases before
        the exchange: no figure of the exchange is in it."""
        def before(row):
            return sum(seconds(row, n) for n in ("t_start", "data", "forward", "backward"))
        return before(other) - before(rows)

    def test_skew_comes_back(self):
        """Of rank 1's delay rank 0 waits: in each batch, what the phases before the exchange say. They
        end before it begins, and what lies between is in the batch's other columns. How near that is
        to the delay, `gradwire bench ledger --skew` says."""
        for skew in (200e-6, 1e-3):
            with self.subTest(skew=skew):
                self.train("allreduce", "--steps", 300, "--inject-skew", f"1:{skew}")
                identities.leaves(self, self.out, True)
                identities.waits(self, self.out)
                identities.waits_are_the_exchanges(self, self.out)
                pairs = list(zip(*identities.by_rank(gwrun.batches(self.out))))[10:]
                for _, late in pairs:
                    self.assertGreaterEqual(seconds(late, "data"), skew)
                exchanges = {(row["rank"], row["step"]): row
                             for row in gwrun.rows(self.out, "collectives.csv")}
                for pair in pairs:
                    off = seconds(pair[0], "wait_skew") - max(self.predicted(*pair), 0)
                    outside = sum(identities.outside(row, exchanges[row["rank"], row["step"]])
                                  for row in pair)
                    self.assertLessEqual(abs(off), outside + 1e-6)

    def test_straggler_is_named(self):
        """By docs/measurement.md's rule, in run.json and in the last lines. Mostly rank 1, but on a busy
        machine rank 0 may be held up for longer than any injected delay."""
        done = gwrun.ok(2, "train", *SMALL, "--steps", 16, "--inject-skew", "1:50ms", "--overhead",
                        0, "--out", self.out)
        results = gwrun.run_json(self.out)["results"]
        other, late = sorted(results["ranks"], key=lambda rank: rank["waited_for_s"])
        told, of_step = results["straggler"], late["waited_for_s"] / other["wall_s"]
        if of_step < 0.05:
            self.assertIsNone(told)
            self.assertNotIn("holds the others up", done.stdout)
        else:
            self.assertEqual((told["rank"], told["last_share"], told["waited_s"]),
                             (late["rank"], late["last_share"], late["waited_for_s"]))
            self.assertAlmostEqual(told["of_step"], of_step)
            self.assertAlmostEqual(told["of_waiting"], late["waited_for_s"] / sum(
                rank["waited_for_s"] for rank in results["ranks"]))
            self.assertIn(f"rank {late['rank']} holds the others up", done.stdout)
        self.assertEqual(gwrun.run_json(self.out)["options"]["inject-skew"], "1:50ms")

    def test_the_same_steps(self):
        """What the ranks waited for each other is what they waited, over the steps of the other means:
        without a warm-up in short runs."""
        for steps, left_out in ((8, 0), (16, 0), (24, 10)):
            with self.subTest(steps=steps):
                gwrun.ok(2, "train", *SMALL, "--steps", steps, "--inject-skew", "1:5ms", "--overhead",
                         0, "--out", self.out, "--overwrite")
                ranks = gwrun.run_json(self.out)["results"]["ranks"]
                for column, figure in (("wait_skew", "waited_for_s"), ("wall", "wall_s")):
                    counted = [seconds(row, column) for row in gwrun.batches(self.out)
                               if int(row["step"]) > left_out]
                    self.assertAlmostEqual(sum(rank[figure] for rank in ranks),
                                           2 * sum(counted) / len(counted), delta=1e-9)
