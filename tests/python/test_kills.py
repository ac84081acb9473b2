"""SIGKILL of a rank, at a moment drawn: resumed, the run ends as one that nobody killed.
tests/campaign/kill is the same by the hundred."""

import shutil

import gwrun
import killcase

STEPS, EVERY = 200, 7
KILLS, ATTEMPTS = 2, 10


class Kills(gwrun.Case):
    def compare(self, case, ranks, kill, every):
        """`kill` a run twice, let it end, compare. A run that was over too early, since this
        process came late, begins anew and is slower."""
        options = killcase.words(case, ranks, STEPS, every)
        whole = self.path("whole")
        gwrun.train(ranks, whole, *options)
        out = self.path("run")
        for attempt in range(ATTEMPTS):
            slower = ["--inject-skew", f"1:{2 ** attempt}ms"]
            run = killcase.Victim(ranks, out, options + slower,
                                  killcase.draw(3 + attempt, case))
            while run.kills < KILLS and kill(run):
                pass
            self.assertEqual(run.faults, [])
            if run.kills == KILLS:
                break
            shutil.rmtree(out, ignore_errors=True)
        self.assertEqual(run.kills, KILLS)
        run.finish()
        self.assertEqual(run.faults, [])
        self.assertEqual(killcase.differences(killcase.outcome(out), killcase.outcome(whole)),
                         [])
        return run

    def test_after_a_checkpoint(self):
        """With error feedback: each rank has a residual of its own."""
        run = self.compare("topk", 2, killcase.Victim.kill_trained, EVERY)
        self.assertGreater(max(run.resumed), 0)

    def test_while_writing(self):
        """On three ranks whose replicas differ."""
        self.compare("gossip", 3, killcase.Victim.kill_writing, 1)
