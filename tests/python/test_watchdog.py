"""--hang-timeout: a job without progress says where each rank is stuck, and ends."""

import concurrent.futures
import contextlib
import glob
import os
import re
import signal
import subprocess
import time
import unittest
import uuid

import faultcase
import gwrun

STUCK = os.path.join(os.environ["BUILD"], "tests", "libplugin_stuck.so")
TICKS = os.sysconf("SC_CLK_TCK")


class Late(Exception):
    """A rank was not where it should be before the watchdog's timeout."""


class Job:
    """A training run in the background."""

    def __init__(self, ranks, *words, timeout):
        self.end_of_patience = time.monotonic() + timeout  # or later: progress may still come
        self.mark = uuid.uuid4().hex
        self.process = subprocess.Popen(
            gwrun.command(ranks, "train", "--data", "synthetic:samples=200,features=9", "--layers",
                          "7", "--batch", 20, "--hang-timeout", str(timeout), *words),
            text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
            env={**os.environ, "GW_TEST_MARK": self.mark})

    def pids(self):
        """Processes of the job that are left, by rank."""
        found = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    environ = dict(word.split(b"=", 1) for word in file.read().split(b"\0")
                                   if b"=" in word)
            except OSError:
                continue
            rank = environ.get(b"PMI_RANK", environ.get(b"OMPI_COMM_WORLD_RANK"))
            if environ.get(b"GW_TEST_MARK") == self.mark.encode() and rank is not None:
                found[int(rank)] = int(pid)
        return found

    def left(self):
        """Processes that remain after the end: killed ones take a moment."""
        with contextlib.suppress(AssertionError):
            faultcase.await_true(lambda: not self.pids(), timeout=60, pause=0.05)
        return self.pids()

    def begun(self):
        """Wait until the run is in its first steps."""
        for line in self.process.stdout:
            if "parameters;" in line:
                return self
        self.in_time()
        raise AssertionError(self.process.communicate()[1])

    def used(self):
        """What each rank has had of the cores: seconds, and how often another took its place, though it
        was still able to run or since it napped (tests/yield.c)."""
        used = {}
        for rank, pid in self.pids().items():
            with open(f"/proc/{pid}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
            turns = 0
            for path in glob.glob(f"/proc/{pid}/task/*/status"):
                with open(path, encoding="utf-8") as file:
                    lost, napped = (int(re.search(rf"^{kind}_ctxt_switches:\s*(\d+)", text, re.MULTILINE)[1])
                                    for text in [file.read()] for kind in ("nonvoluntary", "voluntary"))
                turns += lost + (napped if path.split("/")[-2] == str(pid) else 0)  # other threads nap at will
            used[rank] = (int(fields[11]) + int(fields[12])) / TICKS, turns
        return used

    def in_time(self):
        """Late, if the watchdog may have lost patience already."""
        if time.monotonic() >= self.end_of_patience:
            raise Late

    def waiting(self):
        """Wait until each rank is where it stays: rank 1 busy in its first step, then the others in
        the exchange. From the line that `begun` waits for, that takes far less of a core's time than
        this. Ranks that yield hardly get any on a busy machine: their turns count, too."""
        self.begun()
        for others in (False, True):
            before = self.used()
            while not all(seconds > before[rank][0] + 0.1 or rank != 1 and turns > before[rank][1] + 20
                          for rank, (seconds, turns) in self.used().items() if (rank != 1) == others):
                self.in_time()
                time.sleep(0.02)

    def signal(self, number, ranks):
        pids = self.pids()
        for rank in ranks:
            os.kill(pids[rank], number)

    def end(self):
        """Its last words, and what its exit status was."""
        _, errors = self.process.communicate(timeout=gwrun.HANG_S)
        return errors, self.process.returncode


# --comm: the ranks, the call of MPI that the others are in, and what their exchange waits for.
STOPPED = {
    "allreduce": (2, r"in MPI_Allreduce_c", r"blocked in an MPI collective of 2 ranks"),
    "allreduce:algo=ring": (3, r"MPI_\w+", r"(from|to) rank 1 "),
    "allreduce:algo=shm": (3, r"MPI", r"waits for the signal of rank 1 in shared memory"),
    "iallreduce:algo=sra,progress=poll": (2, r"MPI_Test", r"from rank 1 \("),
    "iallreduce:algo=sra,progress=thread": (2, r"MPI by the progress thread: .* MPI_Test",
                                            r"from rank 1 \("),
}


def stopped(comm):
    """Rank 1 is stopped during its first step. While they wait, the others poll: the timeout is as
    short as this machine is fast."""
    for timeout in (8, 16, 32, 55):  # the skew takes longer
        job = Job(STOPPED[comm][0], "--comm", comm, "--inject-skew", "1:60", timeout=timeout)
        with contextlib.suppress(Late, KeyError, OSError):  # the latter two: of a process that has ended
            job.waiting()
            job.signal(signal.SIGSTOP, [1])
            job.in_time()
            return *job.end(), job.left()
        job.end()
    raise AssertionError(f"--comm {comm}: the ranks do not reach their places")


def stuck():
    """No rank is stopped, but an exchange never ends."""
    job = Job(2, "--comm", STUCK, timeout=4)
    return *job.end(), job.left()


def paused():
    """All ranks are stopped for longer than the timeout."""
    job = Job(2, "--steps", 3, "--inject-skew", "1:1", timeout=5).begun()
    job.signal(signal.SIGSTOP, [0, 1])
    time.sleep(5.5)
    job.signal(signal.SIGCONT, [1, 0])
    return *job.end(), job.left()


class Watchdog(unittest.TestCase):
    """What the jobs said, their exit status, and the processes that remained of them."""

    @classmethod
    def setUpClass(cls):
        """All jobs run at once, since they only wait."""
        with concurrent.futures.ThreadPoolExecutor(len(STOPPED) + 2) as pool:
            ends = {comm: pool.submit(stopped, comm) for comm in STOPPED}
            cls.stuck, cls.paused = pool.submit(stuck), pool.submit(paused)
        cls.stopped = {comm: end.result() for comm, end in ends.items()}

    def test_stopped(self):
        """The others report what they wait for and name the stopped rank, and none remains."""
        for comm, (ranks, call, pending) in STOPPED.items():
            errors, status, left = self.stopped[comm]
            with self.subTest(comm=comm):
                self.assertNotEqual(status, 0)
                self.assertEqual(left, {})
                for rank in set(range(ranks)) - {1}:
                    said = "\n".join(line for line in errors.splitlines()
                                     if line.startswith(f"gradwire: rank {rank}"))
                    self.assertRegex(said, r"no progress .*: training, 0 steps done, "
                                           r"epoch 1, phase mpi_wait")
                    self.assertIn(f"--comm {comm} --compress none: in finish", said)
                    self.assertRegex(said, call)
                    self.assertRegex(said, r"lane 0 \(gradients\), schedule \d+, .*" + pending)
                    self.assertRegex(said, r"rank 1 on this host \(.*\) is stopped \(SIGSTOP")
                if not gwrun.by_open_mpi():  # that lets a stopped rank go on before it kills it
                    self.assertNotIn("gradwire: rank 1 ", errors)

    def test_stuck(self):
        """All ranks report it."""
        errors, status, left = self.stuck.result()
        self.assertEqual((status, left), (1, {}), errors)
        for rank in range(2):
            self.assertRegex(errors, rf"gradwire: rank {rank} \(.*training, 0 steps done, epoch 1")
            self.assertRegex(errors, rf"gradwire: rank {rank}:   --comm .*stuck.so .*: in finish")
            self.assertIn(f"gradwire: rank {rank}:   no exchange is under way", errors)
        self.assertNotIn("is stopped", errors)

    def test_paused(self):
        """A batch system may stop all ranks for longer than the timeout: they then continue."""
        self.assertEqual(self.paused.result(), ("", 0, {}))


if __name__ == "__main__":
    unittest.main()
