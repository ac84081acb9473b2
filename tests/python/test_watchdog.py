"""--hang-timeout: a job without progress says where each rank is stuck, and ends."""

import concurrent.futures
import contextlib
import glob
import os
import re
import signal
import subprocess
import tempfile
import time
import unittest
import uuid

import faultcase
import gwrun

STUCK = os.path.join(os.environ["BUILD"], "tests", "libplugin_stuck.so")
TICKS = os.sysconf("SC_CLK_TCK")


PATIENCE_S = 600  # --hang-timeout: no machine is so busy that a run stands still for so long
SKEW_S = 60

# Has the watchdog's time pass when the test says so; all others have the machine's. In HASTE: each of its naps is
# over at once and has lasted as long as it was to, until it has spoken. In LEAP: each of three naps has lasted for
# hours, as if the machine had been stopped. Only the watchdog waits by pthread_cond_timedwait.
CLOCK = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static _Thread_local double ahead;
static _Thread_local int spoke, leaps;

static double seconds(struct timespec t) {
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int clock_gettime(clockid_t id, struct timespec *t) {
    int rc = (int)syscall(SYS_clock_gettime, id, t);
    if (rc == 0 && id == CLOCK_MONOTONIC && ahead > 0) {
        double now = seconds(*t) + ahead;
        t->tv_sec = (time_t)now;
        t->tv_nsec = (long)(1e9 * (now - (double)t->tv_sec));
    }
    return rc;
}

static int asked(const char *name) {
    const char *path = getenv(name);
    return path && access(path, F_OK) == 0;
}

static void note(int leap) {
    int fd = open(getenv("GW_TEST_LEAP"), O_WRONLY | O_APPEND);
    if (fd >= 0)
        syscall(SYS_write, fd, &leap, 1), close(fd);
}

int pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *till) {
    struct timespec now;
    (void)c;
    pthread_mutex_unlock(m);
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    pthread_mutex_lock(m);
    clock_gettime(CLOCK_MONOTONIC, &now);
    double left = seconds(*till) - seconds(now);
    if (left > 0 && !spoke && asked("GW_TEST_HASTE"))
        ahead += left;
    else if (leaps < 3 && asked("GW_TEST_LEAP"))
        ahead += 10000, note(++leaps);
    else if (left > 0)
        return 0; /* woken for nothing, as may be */
    return ETIMEDOUT;
}

ssize_t write(int fd, const void *data, size_t n) {
    spoke |= fd == STDERR_FILENO && ahead > 0;
    return syscall(SYS_write, fd, data, n);
}
"""


class Late(Exception):
    """The rank that was to be late is not any more."""


class Job:
    """A training run in the background. Its watchdog does not lose patience before `hasten`."""

    def __init__(self, environment, ranks, *words):
        folder = environment["GW_TEST_FOLDER"]
        self.mark = uuid.uuid4().hex
        self.haste, self.leap, self.hooks = (os.path.join(folder, f"{what}-{self.mark}")
                                             for what in ("haste", "leap", "hooks"))
        self.process = subprocess.Popen(
            gwrun.command(ranks, "train", "--data", "synthetic:samples=200,features=9", "--layers",
                          "7", "--batch", 20, "--hang-timeout", PATIENCE_S, *words),
            text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
            env={**environment, "GW_TEST_MARK": self.mark, "GW_TEST_HASTE": self.haste,
                 "GW_TEST_LEAP": self.leap, "GW_TEST_STUCK": self.hooks})

    def hasten(self):
        open(self.haste, "x", encoding="utf-8").close()

    def pids(self):
        """Processes of the job that are left, by rank."""
        found = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                environ = dict(word.split(b"=", 1) for word in gwrun.read_bytes(f"/proc/{pid}/environ").split(b"\0")
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
                self.skewed_until = time.monotonic() + SKEW_S - 5
                return self
        raise AssertionError(self.process.communicate()[1])

    def used(self):
        """What each rank has had of the cores: seconds, and how often another took its place, though it
        was still able to run or since it napped (tests/yield.c)."""
        used = {}
        for rank, pid in self.pids().items():
            fields = gwrun.read_bytes(f"/proc/{pid}/stat").rpartition(b")")[2].split()
            turns = 0
            for path in glob.glob(f"/proc/{pid}/task/*/status"):
                text = gwrun.read(path)
                lost, napped = (int(re.search(rf"^{kind}_ctxt_switches:\s*(\d+)", text, re.MULTILINE)[1])
                                for kind in ("nonvoluntary", "voluntary"))
                turns += lost + (napped if path.split("/")[-2] == str(pid) else 0)  # other threads nap at will
            used[rank] = (int(fields[11]) + int(fields[12])) / TICKS, turns
        return used

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

    def in_time(self):
        if time.monotonic() >= self.skewed_until:
            raise Late

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
    "allreduce": (2, r"in MPI_Allreduce(_c)?\b", r"blocked in an MPI collective of 2 ranks"),
    "allreduce:algo=ring": (3, r"MPI_\w+", r"(from|to) rank 1 "),
    "allreduce:algo=shm": (3, r"MPI", r"waits for the signal of rank 1 in shared memory"),
    "iallreduce:algo=sra,progress=poll": (2, r"MPI_Test", r"from rank 1 \("),
    "iallreduce:algo=sra,progress=thread": (2, r"MPI by the progress thread: .* MPI_Test",
                                            r"from rank 1 \("),
}


def state(pid):
    return gwrun.read(f"/proc/{pid}/stat").rpartition(")")[2].split()[0]


def stopped(environment, comm):
    """Rank 1 is stopped during its first step. While they wait, the others poll."""
    for _ in range(5):  # the skew is over at times, if the cores have much else to do
        job = Job(environment, STOPPED[comm][0], "--comm", comm, "--inject-skew", f"1:{SKEW_S}")
        try:
            job.waiting()
            job.signal(signal.SIGSTOP, [1])
            job.in_time()
        except (Late, KeyError, OSError):  # the latter two: of a process that has ended
            job.process.terminate()
            job.end()
            continue
        job.hasten()
        return *job.end(), job.left()
    raise AssertionError(f"--comm {comm}: the ranks do not reach their places")


def stuck(environment):
    """No rank is stopped, but an exchange never ends."""
    job = Job(environment, 2, "--comm", STUCK)
    faultcase.await_true(lambda: os.path.exists(job.hooks) and os.path.getsize(job.hooks) == 2
                         or job.process.poll() is not None, pause=0.05)
    job.hasten()
    return *job.end(), job.left()


def paused(environment):
    """All ranks are stopped, and for hours by the clock; no step ends meanwhile. Then they go on, until the test
    ends the run."""
    job = Job(environment, 2, "--epochs", 100000, "--inject-skew", "1:1").begun()
    job.signal(signal.SIGSTOP, [0, 1])
    faultcase.await_true(lambda: all(state(pid) == "T" for pid in job.pids().values()))
    open(job.leap, "x", encoding="utf-8").close()
    job.signal(signal.SIGCONT, [1, 0])
    faultcase.await_true(lambda: os.path.getsize(job.leap) == 3 * 2 or job.process.poll() is not None)
    with contextlib.suppress(KeyError, OSError):  # it has ended, and the test will tell
        job.signal(signal.SIGTERM, [0])
    return *job.end(), job.left()


class Watchdog(unittest.TestCase):
    """What the jobs said, their exit status, and the processes that remained of them."""

    @classmethod
    def setUpClass(cls):
        """All jobs run at once, since they only wait."""
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        environment = gwrun.preload(folder.name, CLOCK, GW_TEST_FOLDER=folder.name)
        with concurrent.futures.ThreadPoolExecutor(len(STOPPED) + 2) as pool:
            ends = {comm: pool.submit(stopped, environment, comm) for comm in STOPPED}
            cls.stuck, cls.paused = pool.submit(stuck, environment), pool.submit(paused, environment)
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
        """All ranks report it. Both abort with status 1, and the launcher may kill the later one (9)."""
        errors, status, left = self.stuck.result()
        self.assertIn(status, (1, 9), errors)
        self.assertEqual(left, {})
        for rank in range(2):
            self.assertRegex(errors, rf"gradwire: rank {rank} \(.*training, 0 steps done, epoch 1")
            self.assertRegex(errors, rf"gradwire: rank {rank}:   --comm .*stuck.so .*: in finish")
            self.assertIn(f"gradwire: rank {rank}:   no exchange is under way", errors)
        self.assertNotIn("is stopped", errors)

    def test_paused(self):
        """A batch system may stop all ranks for longer than the timeout: they then continue."""
        errors, status, left = self.paused.result()
        self.assertRegex(errors, r"(?m)^gradwire: stopped by SIGTERM after step \d+$")
        self.assertNotIn("progress", errors)
        self.assertEqual((status, left), (128 + signal.SIGTERM, {}))
