"""Starts the processes of a run and the testbed under it, and reads their output."""

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys

import processes
from ablation.base import variables
from ablation.command import LINK
from ablation.journal import LOG
from ablation.progress import warn
from reporting.ends import BANNER, SRUN_DIED
from tool import BadInput

TESTBED = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "testbed")
LOG_BYTES, MESSAGE_LINES, MESSAGE_LENGTH = 64 << 10, 10, 2000
DIED_OF = re.compile(r"YOUR APPLICATION TERMINATED WITH THE EXIT STRING: .*\(signal (\d+)\)")


# ---- the command ----

def threads_of(cell):
    """Threads of a rank, by the options, the place {threads} or OpenMP's variable."""
    given = (dict(zip(cell.words, cell.words[1:])).get("--threads") or cell.places.get("threads")
             or cell.environment.get("OMP_NUM_THREADS") or "1")
    return max(1, int(given)) if re.fullmatch(r"\d{1,4}", given) else 1


class Launcher:
    """Starts the ranks of a cell: by BUILD/mpiexec, by srun, or on the testbed."""

    def __init__(self, kind, build, out, directory):
        self.kind = kind
        self.build, self.directory = build, directory  # directory: where relative paths start
        self.program = os.path.join(build, "gradwire")
        self.mpiexec = os.path.join(build, "mpiexec")
        digest = hashlib.sha256(os.fsencode(os.path.abspath(out))).hexdigest()
        self.name = f"study-{digest[:12]}"  # of the testbed: the same when a study is resumed
        self.up = {}  # job -> {option of `testbed up`: value}: runs at one time share no links

    def bed(self, job):
        """The name of a job's testbed."""
        return f"{self.name}-job{job}" if job else self.name

    def refuse(self, cells, jobs, oversubscribe, later=False):
        """Refuses what cannot work, before anything runs. `later`: the runs begin elsewhere, where
        there is srun."""
        for path in [self.program] + [self.mpiexec] * (self.kind != "srun"):
            if not os.access(path, os.X_OK):
                raise BadInput(f"{path}: no such program: build it, or name its folder by --build")
        if self.kind == "srun" and not later and not shutil.which("srun"):
            raise BadInput("--launcher srun: there is no srun in PATH: load Slurm, or omit it")
        on_testbed = [cell for cell in cells if cell.testbed]
        if on_testbed and self.kind == "srun":
            raise BadInput(f"{on_testbed[0].id} names hosts or a rate, which the testbed emulates "
                          "on one machine: omit --launcher srun, or choose other cells by --only")
        if self.kind == "testbed" and len(on_testbed) < len(cells):
            cell = next(cell for cell in cells if not cell.testbed)
            raise BadInput(f"--launcher testbed: {cell.id} names neither hosts nor a rate: add them "
                          "to the spec, or omit --launcher")
        if jobs > 1 and self.kind != "srun" and not oversubscribe:
            refuse_crowd(cells, jobs)

    def command(self, planned, folder, job=0):
        return planned.cell.base.of(planned.cell).fill(planned.cell, {
            "launcher": self.starter(planned.cell, job), "gradwire": self.program, "build": self.build,
            "options": self.options(planned, folder), "out": os.path.abspath(folder),
            "seed": str(planned.seed), "ranks": str(planned.cell.ranks)})

    def environment(self, planned, folder):
        return variables(planned.cell.base, planned.cell, self.options(planned, folder), self.build)

    def options(self, planned, folder):
        quiet = ["--quiet"] if planned.cell.base.subcommand else []
        return [*quiet, "--overwrite", *planned.cell.words, "--seed", str(planned.seed),
                "--out", os.path.abspath(folder)]

    def starter(self, cell, job):
        """The words before the program that start it on each rank."""
        if cell.simulated:
            return []
        ranks = ["-n", str(cell.ranks)]
        if self.kind == "srun":
            # Hydra ends a job whose rank died; srun goes on unless told so. An end in order stays one.
            return ["srun", "--exclusive", "--kill-on-bad-exit=1", *ranks, "-c", str(threads_of(cell))]
        if cell.testbed:
            return [sys.executable, "-B", TESTBED, "run", "--name", self.bed(job), *ranks,
                    "--per-host", str(cell.testbed["per_host"]), "--mpiexec", self.mpiexec, "--"]
        return [self.mpiexec, *ranks]

    def start(self, ranks):
        """The words that start gradwire to check a command, also on a login node; of 0 ranks, without a launcher."""
        if ranks == 0:
            return [self.program]
        inside = "SLURM_JOB_ID" in os.environ or not os.access(self.mpiexec, os.X_OK)
        launcher = "srun" if self.kind == "srun" and inside else self.mpiexec
        return [launcher, "-n", str(ranks), self.program]

    # ---- the testbed ----

    def testbed(self, job, verb, *words):
        done = subprocess.run([sys.executable, "-B", TESTBED, verb, "--name", self.bed(job), *words],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              errors="replace", check=False, start_new_session=True)
        if done.returncode != 0:
            lines = (done.stderr.strip() or f"testbed {verb} failed").splitlines()
            raise BadInput(lines[-1])

    def prepare(self, cell, job=0):
        """Builds the cell's testbed; it stays for the job's next run with the same one."""
        if not cell.testbed:
            return
        wanted = {name: str(cell.testbed[name]) for name in ("hosts", "rate", *LINK)
                  if name in cell.testbed}
        if self.up.get(job) == wanted:
            return
        self.testbed(job, "down")  # of another cell, or of a runner that was killed
        self.up[job] = {}  # it may be up in part
        self.testbed(job, "up", *(word for name in wanted for word in (f"--{name}", wanted[name])))
        self.up[job] = wanted

    def try_testbed(self, cells):
        """BadInput, before the first run, if the testbed cannot be built or start ranks."""
        cell = next((cell for cell in cells if cell.testbed), None)
        if cell:
            self.prepare(cell)
            self.testbed(0, "run", "-n", "1", "--mpiexec", self.mpiexec, "--", "true")

    def close(self):
        while self.up:
            job, _ = self.up.popitem()
            try:
                self.testbed(job, "down")
            except BadInput as error:  # the runs are complete nevertheless
                warn(f"the testbed {self.bed(job)} stays up: {error}")


def refuse_crowd(cells, jobs):
    cores = len(os.sched_getaffinity(0))
    need = sorted((cell.processes * threads_of(cell) for cell in cells), reverse=True)
    if need and need[0] * jobs > cores:
        raise BadInput(f"--jobs {jobs}: {jobs} runs of {need[0]} ranks x threads need "
                      f"{need[0] * jobs} cores, here are {cores}: name fewer jobs, or give "
                      "--oversubscribe where times do not matter")


# ---- the processes ----

def start(words, environment, directory, log, mask):
    """Starts a command with a changed environment (None: unset) and its output in `log`."""
    changed = {name: str(value) for name, value in {**os.environ, **environment}.items()
               if value is not None}
    with open(log, "wb") as file:
        return processes.start(words, mask, env=changed, cwd=directory, stdout=file,
                               stderr=subprocess.STDOUT)


def read_log(folder):
    """The text of log.txt. Cuts a long file in the middle, and removes an empty one."""
    path = os.path.join(folder, LOG)
    with open(path, "rb") as file:
        size = os.path.getsize(path)
        text = file.read(LOG_BYTES // 2 if size > LOG_BYTES else LOG_BYTES)
        if size > LOG_BYTES:
            file.seek(-LOG_BYTES // 2, os.SEEK_END)
            text += b"\n[...]\n" + file.read()
    if size == 0:
        os.unlink(path)
    elif size > LOG_BYTES:
        with open(path, "wb") as file:
            file.write(text)
    return text.decode(errors="replace")


def last_words(text):
    """The last lines of a run, without those of its launcher."""
    lines = [line.strip() for line in BANNER.sub("", text).splitlines() if line.strip()]
    return "\n".join(lines[-MESSAGE_LINES:])[-MESSAGE_LENGTH:]


def died_of(returncode, text):
    """Name of the signal that ended the launcher, or a rank by the launcher's words; else None."""
    told, by_srun = DIED_OF.search(text), SRUN_DIED.search(text)
    number = -returncode if returncode < 0 else int(told[1]) if told else 0
    if by_srun and not number:
        number = next((one for one in signal.valid_signals() if signal.strsignal(one) == by_srun[1]), 0)
    try:
        return signal.Signals(number).name if number else None
    except ValueError:
        return f"signal {number}"
