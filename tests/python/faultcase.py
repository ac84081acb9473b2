"""Runs that a test disturbs: it starts them, does not wait for them, and finds their ranks."""

import contextlib
import os
import re
import signal
import subprocess
import time

import gwrun

# In the place of oneDNN's. By FAULT the call FAULT_CALL goes wrong: on the rank FAULT_RANK the first float of its
# result is not a number ("nan") or 1e20 ("huge"), or it never ends ("stuck"); on all ranks it and those after it fail ("fail").
PRODUCT = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <math.h>
#include <mpi.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int dnnl_sgemm(char ta, char tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
               int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc) {
    static int (*real)(char, char, int64_t, int64_t, int64_t, float, const float *, int64_t,
                       const float *, int64_t, float, float *, int64_t);
    static int calls, rank;
    if (!real) {
        *(void **)&real = dlsym(RTLD_NEXT, "dnnl_sgemm");
        PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    }
    int status = real(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    int late = ++calls - atoi(getenv("FAULT_CALL"));
    const char *fault = getenv("FAULT");
    if (strcmp(fault, "fail") == 0)
        return late < 0 ? status : 1;
    int now = late == 0 && rank == atoi(getenv("FAULT_RANK"));
    while (now && strcmp(fault, "stuck") == 0)
        pause();
    if (now)
        c[0] = strcmp(fault, "huge") == 0 ? 1e20f : NAN;
    return status;
}
"""


def _read(*path):
    """A file of /proc; b"" when its process is gone."""
    try:
        return gwrun.read_bytes("/proc", *path)
    except OSError:
        return b""


def _parents():
    """{pid: its parent's} of all processes."""
    found = {}
    for name in os.listdir("/proc"):
        after = _read(name, "stat").rpartition(b")")[2].split() if name.isdigit() else []
        if len(after) > 1 and after[0] not in b"ZX":
            found[int(name)] = int(after[1])
    return found


def ranks_of(launcher):
    """{rank: pid} of the gradwire processes below `launcher` (or that it is itself)."""
    parents, found = _parents(), {}
    for pid in parents:
        above = pid
        while above in parents and above != launcher:
            above = parents[above]
        if above != launcher or b"gradwire" not in _read(str(pid), "comm"):
            continue
        rank = re.search(rb"(?:^|\0)(?:PMI|PMIX|OMPI_COMM_WORLD)_RANK=(\d+)",
                         _read(str(pid), "environ"))
        found[int(rank.group(1)) if rank else 0] = pid
    return found


def catches(pid, number):
    """Whether the process has a handler for this signal."""
    mask = re.search(rb"^SigCgt:\s*([0-9a-f]+)", _read(str(pid), "status"), re.MULTILINE)
    return bool(mask) and bool(int(mask.group(1), 16) >> (number - 1) & 1)


def pending(pid, number):
    """Whether the process still has to take this signal."""
    masks = re.findall(rb"^(?:Shd|Sig)Pnd:\s*([0-9a-f]+)", _read(str(pid), "status"), re.MULTILINE)
    return any(int(mask, 16) >> (number - 1) & 1 for mask in masks)


def stopped(pid):
    """Whether a signal has stopped the process."""
    return _read(str(pid), "stat").rpartition(b")")[2].split()[:1] == [b"T"]


def columns(out, name, wanted):
    """These columns of a run's CSV file, a tuple of texts a row."""
    return [tuple(row[column] for column in wanted) for row in gwrun.rows(out, name)]


def namespace(*flags, trial=("true",)):
    """The command that runs another in a namespace that unshare makes with these flags; None: that, or the
    `trial` in it, is not allowed here."""
    for words in (flags, ("--map-root-user", *flags)):
        if subprocess.run(["unshare", *words, *trial], stderr=subprocess.DEVNULL, check=False).returncode == 0:
            return ["unshare", *words]
    return None


def await_true(what, timeout=gwrun.HANG_S, pause=0.002):
    """The first true value of what(); a test that waits longer has failed."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        value = what()
        if value:
            return value
        time.sleep(pause)
    raise AssertionError(f"waited {timeout} s in vain")


def product(folder, fault, call, rank=0):
    """The environment in which a product goes wrong."""
    return gwrun.preload(folder, PRODUCT, FAULT=fault, FAULT_CALL=str(call), FAULT_RANK=str(rank))


class Started:
    """`gradwire PROGRAM WORDS` on `ranks` ranks (1: without a launcher), running in the background. A
    context manager: it leaves no process behind."""

    def __init__(self, ranks, *words, log, program="train", **more):
        command = gwrun.command(0 if ranks == 1 else ranks, program, *words)
        self.n = ranks
        self.pids = None
        self.log = log
        # A session of its own: an interrupt of the terminal is none of a run's under test.
        with open(log, "w", encoding="utf-8") as file:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file,
                                            stderr=subprocess.STDOUT, start_new_session=True,
                                            **more)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pid in ranks_of(self.process.pid).values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()

    def text(self):
        """What it has printed so far, errors included."""
        return gwrun.read_bytes(self.log).decode(errors="backslashreplace")

    def ranks(self):
        """{rank: pid}, once all have started; cached, because finding them takes some milliseconds."""
        def found():
            pids = ranks_of(self.process.pid)
            if self.process.poll() is not None:
                raise AssertionError(f"ended with {self.process.returncode}: {self.text()}")
            return pids if len(pids) == self.n else None
        self.pids = self.pids or await_true(found)
        return self.pids

    def send(self, number, rank):
        """Send a signal to one rank as soon as it watches for it; return when it has received it."""
        pid = self.ranks()[rank]
        await_true(lambda: catches(pid, number))
        os.kill(pid, number)
        await_true(lambda: not pending(pid, number))

    def stop(self, number, rank):
        """The exit status of a run that trains, after a signal to one rank."""
        self.ranks()
        self.await_line("parameters;")
        self.send(number, rank)
        return self.status()

    def await_line(self, part):
        """Wait until it has printed `part`."""
        await_true(lambda: part in self.text() or self.process.poll() is not None)
        if part not in self.text():
            raise AssertionError(f"ended with {self.process.returncode}: {self.text()}")

    def kill(self, rank=0):
        """A rank, upon which the launcher ends the others."""
        os.kill(self.ranks()[rank], signal.SIGKILL)
        self.status()

    def over(self):
        """Whether it has ended."""
        return self.process.poll() is not None

    def wait_at_most(self, seconds):
        """Back when it has ended or the time is over."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            pass

    def status(self, timeout=gwrun.HANG_S):
        """Exit status; more than `timeout` seconds is a hang and raises."""
        return self.process.wait(timeout)
