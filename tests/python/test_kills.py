"""SIGKILL of a rank, at a moment drawn: resumed, the run ends as one that nobody killed.
tests/campaign/kill is the same by the hundred."""

import os
import tempfile
import unittest

import gwrun
import killcase

STEPS, EVERY = 200, 7


class Kills(unittest.TestCase):
    def compare(self, case, ranks, kill, every):
        """`kill` a run until it has been killed twice or is over, let it end, compare."""
        with tempfile.TemporaryDirectory() as top:
            options = killcase.words(case, STEPS, every)
            whole = os.path.join(top, "whole")
            gwrun.train(ranks, whole, *options)
            out = os.path.join(top, "run")
            run = killcase.Victim(ranks, out, options, killcase.draw(3, case))
            while run.kills < 2 and kill(run):
                pass
            run.finish()
            self.assertEqual(run.faults, [])
            self.assertEqual(killcase.differences(killcase.outcome(out), killcase.outcome(whole)),
                             [])
            return run

    def test_after_a_checkpoint(self):
        """With error feedback: each rank has a residual of its own."""
        run = self.compare("topk", 2, killcase.Victim.kill_trained, EVERY)
        self.assertEqual(run.kills, 2)
        self.assertGreater(max(run.resumed), 0)

    def test_while_writing(self):
        """On three ranks whose replicas differ."""
        self.assertGreater(self.compare("gossip", 3, killcase.Victim.kill_writing, 1).kills, 0)


if __name__ == "__main__":
    unittest.main()
