"""The experiment runner on rough ground: damaged files, a full disk, closed streams, folders that
go, and calls from elsewhere. No run is lost or taken for another, and no traceback is shown."""

import contextlib
import errno
import fcntl
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import unittest
from unittest import mock

import gwrun
from test_bad_input import idx
from test_experiments import TRAIN, Study, Terminal, read
from ablation import journal, launch, progress
from ablation.spec import plan, read_spec

TWO = f"""
claim: Two runs → two results.
base: {TRAIN} --epochs 1
factors: {{compress: [none, fp16]}}
"""


class Damaged(Study):
    """What a folder holds is taken for what it is, or not at all."""

    def setUp(self):
        super().setUp()
        self.write(TWO)
        self.study = read_spec(self.spec, False, os.path.join(self.build, "gradwire"))
        self.plan = plan(self.study)
        self.journal = journal.Journal(self.out)
        for planned in self.plan:
            os.makedirs(self.journal.folder(planned))
            journal.write_json(os.path.join(self.journal.folder(planned), "run.json"),
                               {"results": {"stopped_by": "epochs"}})

    def record(self, **changed):
        attempt = {**journal.new_attempt(), "seconds": 1.5, "status": 0, "interrupted": False}
        return {**journal.new_record(self.study, self.plan[0], 0), "state": "done",
                "attempts": [attempt], **changed}

    def load(self, record):
        self.journal.save(self.plan[0], record)
        return self.journal.load(self.plan[0])

    def test_record(self):
        good = self.record()
        self.assertEqual(self.load(good), good)
        [attempt] = good["attempts"]
        for bad in ([], 1, {}, self.record(state="odd"), self.record(state=["done"]),
                    self.record(attempts=3), self.record(attempts=[]), self.record(attempts=[{}]),
                    self.record(attempts=[{**attempt, "interrupted": True}]),
                    self.record(attempts=[{**attempt, "seconds": "1"}]),
                    self.record(attempts=[{**attempt, "message": None}]),
                    self.record(schema=2), self.record(seed=7), self.record(block=1)):
            with self.subTest(bad=bad):
                self.assertIsNone(self.load(bad))
        self.assertIsNone(self.load(self.record(cell=self.plan[1].cell.id)))  # copied from there
        path = os.path.join(self.journal.folder(self.plan[0]), journal.RUN)
        self.load(good)
        for size in range(os.path.getsize(path) - 3, 0, -50):
            os.truncate(path, size)
            self.assertIsNone(self.journal.load(self.plan[0]))

    def test_study(self):
        path = os.path.join(self.out, journal.STUDY)
        facts = {"gradwire": {"version": None, "commit": None}}
        self.journal.create(self.study, self.plan, facts)
        good = json.loads(read(path))
        self.assertEqual(self.journal.order(self.study, self.plan, True), self.plan)
        for bad in ([], {}, {"schema": 1}, {**good, "runs": 3}, {**good, "runs": [{"folder": 3}]},
                    {**good, "spec": "text"}, {**good, "gradwire": None}, {**good, "name": None},
                    {**good, "directory": 5}):
            journal.write_json(path, bad)
            with self.subTest(bad=bad), self.assertRaisesRegex(journal.BadInput, "is damaged"):
                self.journal.order(self.study, self.plan, True)
        journal.write_json(path, {**good, "schema": 2})
        with self.assertRaisesRegex(journal.BadInput, "has schema 2, not 1"):
            self.journal.study()
        journal.write_json(path, good)
        os.truncate(path, 200)
        gwrun.refusal(self.call("--resume"), f"{path}: is damaged: restore it")


class Ground(Study):
    def run_with(self, *words, **more):
        return subprocess.run(self.words(*words), stderr=subprocess.PIPE, text=True, check=False,
                              timeout=300, stdin=subprocess.DEVNULL,
                              **{"stdout": subprocess.PIPE, **more})

    def test_nobody_listens(self):
        """A study does not end with whoever reads its output."""
        self.write(TWO)
        reader, writer = os.pipe()
        os.close(reader)
        try:
            done = self.run_with(stdout=writer)
        finally:
            os.close(writer)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(self.states_of_all(), ["done", "done"])
        os.unlink(os.path.join(self.out, self.planned()[1], "run.json"))
        gwrun.quiet(self.run_with("--resume", preexec_fn=lambda: os.close(1)))
        self.assertEqual(self.starts(), [*self.planned(), self.planned()[1]])
        said = gwrun.quiet(self.run_with("--dry-run", env={**os.environ, "PYTHONIOENCODING": "ascii"}))
        self.assertIn("Two runs \\u2192 two results.", said)

    def test_attempt_without_its_end(self):
        """As an older runner left it: it counts as one whose runner was killed."""
        self.write(TWO)
        self.assertEqual(self.call().returncode, 0)
        path = os.path.join(self.out, self.planned()[0], journal.RUN)
        record = journal.read_json(path)
        del record["attempts"][0]["interrupted"]
        for state in ("running", "failed"):
            journal.write_json(path, {**record, "state": state})
            gwrun.quiet(self.call("--resume"))
            self.assertEqual(journal.read_json(path)["attempts"][-1]["interrupted"], False)

    def test_record_cannot_be_written(self):
        """As on a full disk; here a folder is in the way."""
        self.write(TWO)
        for place, counts in (("", "0 done, 2 not run; 2 left"),
                              ("b00-s1/compress=none", "1 done, 1 not run; 1 left")):
            name = journal.RUN if place else journal.STUDY
            obstacle = os.path.join(self.out, place, f".{name}.new")
            os.makedirs(obstacle)
            done = self.call("--resume")
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"2 runs: {counts}; in ", done.stdout)
            self.assertRegex(done.stderr, rf"^experiments/run: {obstacle}: [^\n]*: when that is "
                             r"mended, resume with: [^\n]* --resume [^\n]*\n$")
            os.rmdir(obstacle)
            self.call("--resume", "--only", "compress=fp16")
        gwrun.quiet(self.call("--resume"))
        self.assertEqual(sorted(self.starts()), sorted(self.planned()))

    def test_folders_that_go(self):
        self.write(TWO + "ranks: 2\n")
        os.environ["FAKE"] = "hang"
        runner = self.spawn()
        folder = os.path.join(self.out, self.planned()[0])
        shutil.rmtree(folder)
        for pid in self.children(runner.pid):
            os.kill(pid, 9)
        text = runner.communicate(timeout=300)
        self.assertEqual(runner.returncode, 1, text)
        self.assertIn("2 runs: 0 done, 1 unfinished, 1 not run; 2 left;", text[0])
        self.assertEqual(len(text[1].splitlines()), 1, text[1])
        self.assertIn(f"{folder}", text[1])
        self.assertEqual(self.ranks(), [])
        os.environ["FAKE"] = ""
        self.assertEqual(self.call("--resume").returncode, 0)
        self.assertEqual(self.states_of_all(), ["done", "done"])
        shutil.rmtree(folder)
        self.assertEqual(self.call("--resume").returncode, 0)
        self.assertEqual(self.starts()[-1], self.planned()[0])
        self.assertEqual(len(self.starts()), 4)

    def test_study_that_is_replaced(self):
        """The folder is removed or moved under a runner, and another does the study there: not a byte of it
        changes when the first goes on, and that one says what happened."""
        self.write(TWO + "ranks: 2\n")
        for remove, said in ((shutil.rmtree, "was removed while"),
                             (lambda out: os.rename(out, out + ".old"), f"is in {self.out}.old\n")):
            os.environ["FAKE"] = "hang"
            runner = self.spawn()
            remove(self.out)
            os.environ["FAKE"] = ""
            self.assertEqual(self.call().returncode, 0)
            before = gwrun.contents(self.out)
            for pid in self.children(runner.pid):
                os.kill(pid, 9)
            text = runner.communicate(timeout=300)
            self.assertEqual(runner.returncode, 1, text)
            self.assertEqual(len(text[1].splitlines()), 1, text[1])
            self.assertIn(said, text[1])
            self.assertEqual(gwrun.contents(self.out), before)
            self.assertEqual(self.states_of_all(), ["done", "done"])
            shutil.rmtree(self.out)

    def children(self, pid):
        return [int(word) for word in read(f"/proc/{pid}/task/{pid}/children").split()]

    def test_directory(self):
        """A relative path of a spec means the same file wherever the study is resumed."""
        begun = self.path("begun here")
        os.makedirs(os.path.join(begun, "data"))
        for name, content in (("train-images-idx3", idx((6, 2, 2), bytes(24))),
                              ("train-labels-idx1", idx((6,), bytes(range(6)))),
                              ("t10k-images-idx3", idx((3, 2, 2), bytes(12))),
                              ("t10k-labels-idx1", idx((3,), bytes(3)))):
            gwrun.write(os.path.join(begun, "data", name + "-ubyte"), content)
        self.write("""
claim: a test
base: --data ./data --layers 4 --batch 2 --epochs 1 --overhead 0 --ceilings off
factors: {lr: [0.1, 0.2]}
""")
        gwrun.refusal(self.run_with(), "data folder './data'")
        gwrun.quiet(self.run_with("--only", "lr=0.1", cwd=begun))
        gwrun.quiet(self.run_with("--resume"))
        self.assertEqual(self.states_of_all(), ["done", "done"])
        os.rename(begun, begun + " no more")
        gwrun.refusal(self.run_with("--resume"), begun, "--out")

    def test_hangup_before_the_first_run(self):
        """Nothing stays of a study that has not begun."""
        self.write(TWO)
        self.script("build/gradwire", """#!/bin/bash
case "$*" in *--check*) touch {folder}/checking; sleep 1;; *) exec {gradwire} "$@";; esac
""")
        runner = self.begin()
        self.until(lambda: os.path.exists(self.path("checking")))
        runner.send_signal(signal.SIGHUP)
        self.assertEqual(runner.communicate(timeout=300), ("", ""))
        self.assertEqual(runner.returncode, 129)
        self.assertFalse(os.path.exists(self.out))

    def test_no_locks(self):
        """As on some network file systems."""
        self.write(TWO)
        with mock.patch("fcntl.flock", side_effect=OSError(errno.ENOLCK, "No locks available")):
            with self.assertRaisesRegex(journal.BadInput, r"\.lock: this file system has no locks"):
                journal.Journal(self.out).locked().__enter__()
        self.assertEqual(os.listdir(self.out), [".lock"])  # which is perhaps another's

    def test_two_that_start_together(self):
        """One comes between the other's look at the folder and its lock: who is refused leaves it."""
        self.write(TWO)
        first, second = journal.Journal(self.out), journal.Journal(self.out)
        with contextlib.ExitStack() as stack:
            def overtake(*args, make=os.makedirs, **more):
                patch.stop()
                stack.enter_context(first.locked())
                make(*args, **more)
            patch = mock.patch("os.makedirs", overtake)
            patch.start()
            with self.assertRaisesRegex(journal.BadInput, "process .* is at work here"):
                second.locked().__enter__()
            journal.write_json(os.path.join(self.out, journal.STUDY), {})
        self.assertEqual(sorted(os.listdir(self.out)), [".lock", journal.STUDY])

    def test_folder_that_goes_meanwhile(self):
        """Whoever had it locked, and made it for nothing, takes it away: it is made anew."""
        self.write(TWO)
        first, second = journal.Journal(self.out), journal.Journal(self.out)
        held = first.locked()
        held.__enter__()

        def overtake(fd, how, lock=fcntl.flock):
            patch.stop()
            held.__exit__(None, None, None)
            lock(fd, how)
        patch = mock.patch("fcntl.flock", overtake)
        patch.start()
        with second.locked():
            self.assertEqual(os.listdir(self.out), [".lock"])
            with self.assertRaises(journal.BadInput):
                first.locked().__enter__()
        self.assertFalse(os.path.exists(self.out))

    def test_names_of_folders(self):
        self.write(TWO)
        gwrun.refusal(self.call(out="/proc/none/out"), "/proc/none/out: ", "--out")
        gwrun.refusal(self.call("--out", ""), "--out is empty")
        gwrun.refusal(self.call(out=b"/tmp/\xff"), "/tmp/\\udcff: its path is not UTF-8")
        gone = self.path("gone")
        os.mkdir(gone)
        gwrun.refusal(self.run_with(preexec_fn=lambda: (os.chdir(gone), os.rmdir(gone))),
                     "the folder that this is called from is gone")
        self.assertFalse(os.path.exists(self.out))


class Bed(unittest.TestCase):
    def test_half_built(self):
        """What was begun is taken down, though its building was interrupted."""
        verbs = []

        def testbed(_, verb, *words):
            del words
            verbs.append(verb)
            if verb == "up":
                sys.exit(143)
        bed = launch.Launcher("mpiexec", "/build", "/out", "/")
        bed.close()
        self.assertEqual(verbs, [])
        cell = mock.Mock(testbed={"hosts": 2, "rate": "1gbit"})
        with mock.patch.object(bed, "testbed", testbed):
            for _ in range(2):
                with self.assertRaises(SystemExit):
                    bed.prepare(cell)
            bed.close()
            bed.close()
        self.assertEqual(verbs, ["down", "up", "down", "up", "down"])

    def test_stays_up(self):
        """What a study came to does not hang on it."""
        bed = launch.Launcher("mpiexec", "/build", "/out", "/")
        bed.up = {0: {"hosts": "2", "rate": "1gbit"}}
        with (mock.patch.object(bed, "testbed", side_effect=journal.BadInput("busy")),
              mock.patch.object(sys, "stderr", io.StringIO()) as said):
            bed.close()
        self.assertEqual(said.getvalue(),
                         f"experiments/run: the testbed {bed.name} stays up: busy\n")


class Saying(unittest.TestCase):
    def test_passing(self):
        """A terminal is told, and nothing of it stays; a file is not."""
        for stream, shown in ((Terminal(), "\r\033[Kchecking 1/2\r\033[K"), (io.StringIO(), "")):
            with mock.patch.object(sys, "stdout", stream):
                progress.passing("checking 1/2")
                progress.passing("")
            self.assertEqual(stream.getvalue(), shown)
