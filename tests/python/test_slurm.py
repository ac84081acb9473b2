"""Runs under Slurm, whose daemons the test starts on this machine (tests/python/slurm.conf): ranks meet, a killed rank
ends the job, SIGTERM ends it in order, and a launcher of another dialect is refused by the right word."""

import os
import re
import signal
import socket
import subprocess
import time

import gwrun

RUN = ("train", "--data", "synthetic:samples=4000,features=32,classes=4", "--layers", "32", "--batch", "40", "--epochs", "100000",
       "--ceilings", "off", "--overhead", "0", "--hang-timeout", "500")
PATIENCE_S = 120


def ports():
    """Two free ones."""
    both = [socket.socket() for _ in range(2)]
    for one in both:
        one.bind(("127.0.0.1", 0))
    numbers = [str(one.getsockname()[1]) for one in both]
    for one in both:
        one.close()
    return numbers


class Slurm(gwrun.Shared):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        text = gwrun.read(os.path.join(os.path.dirname(__file__), "slurm.conf"))
        for word, value in zip(("DIR", "HOST", "PORT", "NEXT"), (cls.path(""), socket.gethostname().partition(".")[0], *ports())):
            text = re.sub(rf"\b{word}\b", value.rstrip("/"), text)
        conf = cls.path("slurm.conf")
        gwrun.write(conf, text)
        cls.environment = dict(os.environ, SLURM_CONF=conf)
        for folder in ("state", "spool"):
            os.mkdir(cls.path(folder))
        cls.daemons = []
        cls.addClassCleanup(cls.stop)
        for name in ("slurmctld", "slurmd"):
            cls.daemons.append(subprocess.Popen([f"/usr/sbin/{name}", "-D", "-f", conf], stdout=subprocess.DEVNULL,
                                                stderr=subprocess.DEVNULL))
        end = time.monotonic() + PATIENCE_S
        while "idle" not in cls.slurm("sinfo", "--noheader", "--format=%T").stdout:
            if time.monotonic() > end:
                raise AssertionError(gwrun.read(cls.path("slurmctld.log")))
            time.sleep(0.2)

    @classmethod
    def stop(cls):
        for daemon in reversed(cls.daemons):
            daemon.terminate()
            daemon.wait()

    @classmethod
    def slurm(cls, *words):
        return subprocess.run(words, env=cls.environment, capture_output=True, text=True, check=False, timeout=PATIENCE_S)

    def srun(self, *words, mpi="pmi2"):
        return ("srun", "--kill-on-bad-exit=1", f"--mpi={mpi}", "-n", "2", *words)

    def ended(self, out, end):
        """(status, text) of a run in the folder `out`, once end(pids of its ranks) was called within it."""
        process = subprocess.Popen(self.srun(gwrun.GRADWIRE, *RUN, "--out", out), env=self.environment, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        with process:
            for line in process.stdout:
                if line.startswith("epoch "):
                    break
            ranks = subprocess.run(["pgrep", "-f", f"^{gwrun.GRADWIRE} train.*--out {out}$"], text=True,
                                   capture_output=True, check=True).stdout.split()
            end([int(pid) for pid in ranks])
            text = process.stdout.read()
        return process.returncode, text

    def test_ranks_meet(self):
        done = self.slurm(*self.srun(gwrun.GRADWIRE, "doctor"))
        self.assertIn("2 ranks on 1 host", done.stdout)

    def test_other_dialect(self):
        done = self.slurm(*self.srun(gwrun.GRADWIRE, *RUN, mpi="none"))
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("SLURM_STEP_NUM_TASKS=2 says", done.stderr)
        self.assertIn("under Slurm srun --mpi=pmi2)", done.stderr)
        self.assertIn("under Slurm srun --mpi=pmi2", self.slurm(*self.srun(gwrun.GRADWIRE, "doctor", mpi="none")).stdout)

    def test_killed_rank(self):
        status, text = self.ended(self.path("killed"), lambda ranks: os.kill(ranks[-1], signal.SIGKILL))
        self.assertEqual(status, 137, text)
        self.assertRegex(text, r"srun: error: \S+: task \d: Killed")

    def test_ends_in_order(self):
        out = self.path("ended")

        def end(_):
            self.slurm("scancel", "--signal=TERM", self.slurm("squeue", "--noheader", "--format=%i").stdout.strip())

        status, text = self.ended(out, end)
        self.assertEqual(status, 143, text)
        self.assertEqual(gwrun.run_json(out)["results"]["stopped_by"], "SIGTERM")
