"""The ledger compared with an outside observer: a preloaded library (tests/observer/observer.c) that
sees the MPI calls from below, with its own clock and counts. docs/measurement.md says what is compared,
and why the times may differ."""

import os

import gwrun

OBSERVER = os.path.join(os.environ["BUILD"], "tests", "libobserver.so")
MPI = ["mpi_post_s", "mpi_poll_s", "mpi_wait_s"]
STEPS = 200
RATES = 1e-3        # of two clocks, one of them calibrated
READING_S = 1e-6    # digits of the observer's file
READINGS = 0.02     # of CPU time: clocks are read one after another,
MARK_S = 20e-6      # and in each batch no more than so far apart
DATA = ["--data", "synthetic:samples=12800,features=400,classes=10"]
LARGE = ["--layers", "1024"]  # so that encodings, too, take their time


def observed(out, *words):
    """(rows of batches.csv, rows of the observer) of each rank."""
    seen = os.path.join(out, "seen")
    os.makedirs(seen)
    done = gwrun.run(2, "train", "--quiet", *DATA, "--steps", STEPS, "--out",
                     os.path.join(out, "run"), "--overhead", 0, *words,
                     env=dict(os.environ, LD_PRELOAD=OBSERVER, GW_OBSERVER=seen,
                              ASAN_OPTIONS="verify_asan_link_order=0"))
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    told = gwrun.batches(os.path.join(out, "run"))
    ranks = []
    for rank in range(2):
        rows = gwrun.rows(seen, f"{rank}.csv")
        ranks.append(([row for row in told if row["rank"] == str(rank)], rows))
    return ranks


class Observer(gwrun.Case):

    def check_counts(self, ranks):
        sent = received = 0
        for told, seen in ranks:
            self.assertEqual((len(told), len(seen)), (STEPS, STEPS))
            for mine, theirs in zip(told, seen):
                self.assertEqual((mine["wire_bytes"], mine["messages"], mine["collectives"]),
                                 (theirs["sent"], theirs["messages"], theirs["collectives"]),
                                 f"rank {mine['rank']}, step {mine['step']}")
                sent += int(theirs["sent"])
                received += int(theirs["received"])
        self.assertGreater(sent, 0)
        self.assertEqual(sent, received)

    def check_times(self, ranks):
        """The observer reads its clock inside the ledger's regions, so its times are at most those of
        the regions, which in turn lie within the batch."""
        for told, seen in ranks:
            for mine, theirs in zip(told, seen):
                comm = sum(float(mine[column]) for column in MPI)
                self.assertLess(float(theirs["call_s"]), (1 + RATES) * comm + READING_S)
                self.assertLess(comm, float(mine["wall_s"]))

    def check_cpu(self, ranks):
        """The ledger counts a thread as running until it is switched out. Interrupts and a hypervisor
        take a part of that time; when the ledger next asks the kernel, it subtracts that part from a
        later batch. So batches may lack what was taken between them."""
        for told, seen in ranks:
            mine, walls = (sum(float(row[column]) for row in told) for column in ("cpu_s", "wall_s"))
            theirs, longer, stolen = (sum(float(row[column]) for row in seen)
                                      for column in ("cpu_s", "wall_s", "stolen_s"))
            readings = min(READINGS * mine, STEPS * MARK_S)
            self.assertLess(theirs, mine + longer - walls + stolen + readings)
            self.assertLess(mine, (1 + RATES) * walls + readings)

    def compare(self, *words, timed=True):
        ranks = observed(self.dir, *words)
        self.check_counts(ranks)
        self.check_cpu(ranks)
        if timed:
            self.check_times(ranks)

    def test_blocking_scatter_reduce_allgather(self):
        self.compare("--comm", "allreduce:algo=sra")

    def test_blocking_ring(self):
        self.compare("--comm", "allreduce:algo=ring")

    def test_blocking_native(self):
        """Steps that are rehearsed before the first one are no part of its figures."""
        self.compare("--comm", "allreduce:algo=native", "--data", "fashion-mnist", "--overhead", 20)

    def test_overlapped(self):
        self.compare("--comm", "iallreduce:algo=sra,progress=poll")

    def test_overlapped_native(self):
        self.compare("--comm", "iallreduce:algo=native")

    def test_codec(self):
        self.compare("--comm", "iallreduce:algo=sra", "--compress", "qsgd:bits=8", *LARGE)

    def test_sparse_codec(self):
        self.compare("--comm", "iallreduce:algo=sra", "--compress", "topk:ratio=0.5", *LARGE)

    def test_progress_thread(self):
        """The calls of the thread are counted, not timed: the main thread waits for it outside MPI."""
        self.compare("--comm", "iallreduce:algo=sra,progress=thread", timed=False)

    def test_one_thread_at_a_time(self):
        """With lazy updates a progress thread is also in MPI between two batches, while the main thread
        marks them; with --on-nan skip it also agrees with other ranks. MPI was only granted to one
        thread at a time."""
        linger = dict(os.environ, LD_PRELOAD=OBSERVER, GW_OBSERVER_LINGER="300",
                      ASAN_OPTIONS="verify_asan_link_order=0")
        for more in ([], ["--on-nan", "skip", "--compress", "qsgd:bits=8"]):
            with self.subTest(more=more):
                gwrun.ok(2, "train", "--quiet", *DATA, "--steps", 20, "--overhead", 0, "--comm",
                         "iallreduce:algo=sra,progress=thread", "--update", "lazy",
                         "--layers", 512, *more, env=linger)
