"""A disk that is full, read-only or gone while a run trains: the run warns and continues, or
ends with one line; the last good checkpoint stays valid. In a mount namespace of its own."""

import os
import signal
import subprocess
import sys
import unittest

import faultcase
import gwrun
import killcase

INSIDE = "GRADWIRE_TEST_MOUNTS"  # set: this process is in that namespace

# A checkpoint of 150 KB, and rows of 360 KB.
OPTIONS = ["--data", "synthetic:samples=4000,features=64", "--layers", "100", "--batch", 32,
           "--momentum", 0.9, "--steps", 600, "--epochs", 1000, "--seed", 5, "--ceilings", "off",
           "--overhead", 0]
SLOWLY = ["--inject-skew", "1:20ms"]  # so that it is under way when something happens
ENDLESS = ["--inject-skew", "1:1ms", "--steps", 10 ** 9, "--epochs", 10 ** 6]


def setUpModule():
    """All of it in that namespace."""
    enter = None if INSIDE in os.environ else faultcase.namespace(
        "--mount", trial=("mount", "-t", "tmpfs", "none", "/mnt"))
    if enter:
        os.execvpe(enter[0], [*enter, sys.executable, "-B", "-m", "unittest", "test_disk"],
                   {**os.environ, INSIDE: "1"})


def mount(*words):
    subprocess.run(["mount", *words], check=True)


@unittest.skipUnless(INSIDE in os.environ, "mounting is not allowed here, not even in a namespace")
class Disk(gwrun.Case):
    def setUp(self):
        super().setUp()
        self.disk = self.path("disk")
        self.out = os.path.join(self.disk, "run")
        os.mkdir(self.disk)

    def make_disk(self, size):
        mount("-t", "tmpfs", "-o", f"size={size}", "none", self.disk)
        self.addCleanup(subprocess.run, ["umount", "-l", self.disk], check=True)

    def start(self, every, *more):
        words = ["--out", self.out, "--resume", "auto", "--checkpoint-every", every]
        return self.enterContext(faultcase.Started(2, *words, *OPTIONS, *more,
                                                   log=self.path("log")))

    def check_recovery(self, every):
        """With room again, the run goes on to the end of one that lacked none."""
        run = self.start(every)
        self.assertEqual(run.status(), 0, run.text())
        self.assertIn(f"resume: {self.out}/model.ckpt.d/step-", run.text())
        self.assertEqual(gwrun.warnings(run.text()), [])
        whole = self.path("whole")
        gwrun.train(2, whole, *OPTIONS)
        self.assertEqual(killcase.differences(killcase.outcome(self.out), killcase.outcome(whole)),
                         [])

    def test_no_room_for_the_log(self):
        """The run ends with a line when its epoch does."""
        self.make_disk("40k")
        done = gwrun.run(2, "train", *OPTIONS, "--quiet", "--log", f"json:{self.disk}/log")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(done.stderr.count("gradwire: "), 1, done.stderr)
        self.assertRegex(done.stderr, r"gradwire: --log: cannot write .*/log: is the disk full\?\n")

    def test_no_room_for_checkpoints(self):
        """Training goes on, with a warning; or ends with a line, where rows were to be written while
        the checkpoint had taken all room."""
        self.make_disk("420k")
        run = self.start(20, *SLOWLY)
        faultcase.await_true(lambda: gwrun.warnings(run.text()) or run.over())
        if run.over():
            self.assertEqual(run.status(), 1, run.text())
            self.assertEqual(run.text().count("gradwire: "), 1, run.text())
        else:
            self.assertIn("No space left", run.text())
            run.kill()
        mount("-o", "remount,size=8m", self.disk)
        self.check_recovery(20)

    def test_no_room_for_rows(self):
        """The run ends with one line; checkpoints of before are good."""
        self.make_disk("350k")
        run = self.start(100)
        self.assertEqual(run.status(), 1, run.text())
        self.assertEqual(run.text().count("gradwire: "), 1, run.text())
        self.assertNotIn("run.json", os.listdir(self.out))
        mount("-o", "remount,size=8m", self.disk)
        self.check_recovery(100)

    def test_read_only_checkpoints(self):
        """The run goes on as if nothing were, but for one warning, until it is told to stop."""
        self.make_disk("64m")
        folder = os.path.join(self.out, "model.ckpt.d")
        run = self.start(20, *ENDLESS)
        faultcase.await_true(lambda: killcase.complete(self.out))
        mount("--bind", folder, folder)
        mount("-o", "remount,bind,ro", folder)
        faultcase.await_true(lambda: gwrun.warnings(run.text()) or run.over())
        run.send(signal.SIGTERM, 0)
        self.assertEqual(run.status(), 128 + signal.SIGTERM, run.text())
        self.assertEqual(len(gwrun.warnings(run.text())), 1, run.text())
        self.assertIn("Read-only", run.text())
        subprocess.run(["umount", folder], check=True)
        self.assertTrue(killcase.complete(self.out))
        self.assertGreater(gwrun.run_json(self.out)["checkpoints"]["failed"], 0)

    def test_gone(self):
        """A folder that somebody moves away: the run ends, and says where its files are."""
        run = self.start(20, *ENDLESS)
        faultcase.await_true(lambda: killcase.complete(self.out))
        os.rename(self.out, self.out + ".gone")
        self.assertEqual(run.status(), 1, run.text())
        self.assertEqual(gwrun.warnings(run.text()), [])
        self.assertEqual(run.text().count("gradwire: "), 1, run.text())
        self.assertIn(f"what it had written is in {self.out}.gone\n", run.text())
        self.assertTrue(killcase.complete(self.out + ".gone"))

    def test_read_only_from_the_start(self):
        self.make_disk("1m")
        mount("-o", "remount,ro", self.disk)
        done = gwrun.run(2, "train", "--out", self.out, *OPTIONS)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertRegex(done.stderr, r"^gradwire: --out .*Read-only file system\n$")
