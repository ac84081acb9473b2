"""SIGTERM and SIGINT: all ranks stop after the same step, the folder is complete, status 128+n."""

import os
import signal

import faultcase
import gwrun
import killcase

SMALL = ["--data", "synthetic:samples=4000,features=16", "--layers", "16", "--batch", 32,
         "--epochs", 1000000, "--ceilings", "off", "--overhead", 0]
# An evaluation of much more than the two seconds that it is given.
LONG = ["--data", "synthetic:samples=120000,features=100,test=0.9", "--layers", "4000,4000",
        "--batch", 8, "--steps", 1, "--ceilings", "off", "--overhead", 0]
# Holds each rank up before its first step, until a file is there.
HOLD = r"""
#include <mpi.h>
#include <stdlib.h>
#include <unistd.h>
int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *out) {
    while (access(getenv("GO_ON"), F_OK) != 0)
        usleep(1000);
    return PMPI_Comm_split_type(comm, type, key, info, out);
}
"""


class Signals(gwrun.Case):
    def setUp(self):
        super().setUp()
        self.log = self.path("log")

    def start(self, ranks, *words, **more):
        return self.enterContext(faultcase.Started(ranks, "--out", self.out, *words, log=self.log,
                                                   **more))

    def check_folder(self, ranks, name):
        """It is as complete as that of an undisturbed run; returns run.json."""
        run = gwrun.run_json(self.out)
        steps = run["results"]["steps"]
        self.assertEqual(run["results"]["stopped_by"], name)
        self.assertGreater(steps, 0)
        rows = [(int(row["rank"]), int(row["step"])) for row in gwrun.batches(self.out)]
        self.assertEqual(sorted(rows), [(rank, step) for rank in range(ranks)
                                        for step in range(1, steps + 1)])
        last = faultcase.columns(self.out, "epochs.csv", ("step", "replica_hash"))[-1]
        self.assertEqual(last, (str(steps), run["results"]["replica_hash"]))
        self.assertIn(f"gradwire: stopped by {name} after step {steps}\n", gwrun.read(self.log))
        self.assertFalse([name for name in os.listdir(self.out) if name.endswith(".tmp")])
        return run

    def test_one_rank_gets_it(self):
        """The others learn of it."""
        run = self.start(2, "--comm", "delayed", *SMALL)
        self.assertEqual(run.stop(signal.SIGTERM, 1), 128 + signal.SIGTERM, run.text())
        self.check_folder(2, "SIGTERM")

    def test_launcher_gets_it(self):
        """The launcher passes the signal on. Its own status need not tell (docs/faults.md). Open MPI's
        turns it into a SIGTERM, and kills soon after, unless told otherwise."""
        run = self.start(3, "--comm", "iallreduce", "--update", "lazy", *SMALL,
                         env={**os.environ, **gwrun.PATIENT})
        run.await_line("parameters;")
        run.process.send_signal(signal.SIGINT)
        run.status()
        self.check_folder(3, "SIGTERM" if gwrun.by_open_mpi() else "SIGINT")

    def test_taken_up(self):
        """The only checkpoint is of the step at which the run stopped."""
        options = killcase.words("topk", 2, 500, 1000)
        run = self.start(2, *options, "--inject-skew", "1:50ms")  # it must not end before
        self.assertEqual(run.stop(signal.SIGTERM, 0), 128 + signal.SIGTERM, run.text())
        stopped = self.check_folder(2, "SIGTERM")["results"]["steps"]
        self.assertEqual(killcase.complete(self.out), [stopped])
        run = self.start(2, "--resume", "auto", *options)
        self.assertEqual(run.status(), 0, run.text())
        whole = self.out + "-whole"
        gwrun.train(2, whole, *options)
        self.assertEqual(killcase.differences(killcase.outcome(self.out), killcase.outcome(whole)),
                         [])

    def test_before_the_first_step(self):
        """Nothing is written, and an older run keeps its place."""
        gwrun.train(1, self.out, *SMALL, "--steps", 2)
        older = gwrun.run_json(self.out)
        go_on = self.log + ".go"
        run = self.start(2, "--overwrite", *SMALL,
                         env=gwrun.preload(os.path.dirname(self.log), HOLD, GO_ON=go_on))
        run.send(signal.SIGTERM, 0)
        gwrun.write(go_on, "")
        self.assertEqual(run.status(), 128 + signal.SIGTERM, run.text())
        self.assertIn("stopped by SIGTERM before the first step: nothing was written", run.text())
        self.assertEqual(gwrun.run_json(self.out), older)

    def test_during_an_evaluation(self):
        """It is given up, and its figures are absent."""
        run = self.start(1, *LONG)
        self.assertEqual(run.stop(signal.SIGTERM, 0), 128 + signal.SIGTERM, run.text())
        results = self.check_folder(1, "SIGTERM")["results"]
        self.assertIsNone(results["test_accuracy"])
        self.assertIn("not evaluated", run.text())

    def test_second_interrupt(self):
        """It ends a run at once that could still take its time."""
        run = self.start(1, *LONG)
        run.ranks()
        run.await_line("parameters;")
        run.send(signal.SIGINT, 0)
        run.send(signal.SIGINT, 0)
        self.assertEqual(run.status(), -signal.SIGINT, run.text())
        self.assertNotIn("run.json", os.listdir(self.out))
