"""The experiment runner: every cell once, resumed after any interruption, nothing dropped."""

import glob
import io
import json
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import time
from unittest import mock

import gwrun

RUN = os.path.join(gwrun.SOURCE, "experiments", "run")
TRAIN = ("--data synthetic:samples=512,features=16,classes=4 --layers 8 --batch 32 --overhead 0 "
         "--ceilings off")
# Stands for gradwire: notes each start of a run, then does as FAKE says, or is the program itself.
WRAPPER = """#!/bin/bash
for word; do [ "$last" = --out ] && out=$word; last=$word; done
case " $* " in *" --check "*) exec {gradwire} "$@";; */.probe*) exec {probe} "$@";; esac
[ "$1 $OTHER" = "--version yes" ] && {{ echo "gradwire 9 (abc)"; exit 0; }}
[ "$1" = train ] && [ -n "$out" ] || exec {gradwire} "$@"
rank=${{PMI_RANK:-${{OMPI_COMM_WORLD_RANK:-${{SLURM_PROCID:-0}}}}}}
[ "$rank" = 0 ] && echo "$out" >>{folder}/starts
case "$FAKE" in
hang) trap '' TERM; sleep 60 & wait; sleep 60;;
die) kill -9 $$;;
flaky) [ $(grep -cF "$out" {folder}/starts) -ge 3 ] || {{ echo not yet >&2; exit 1; }};;
chatty) for i in $(seq 20000); do echo line $i; done;;
rebuild) rm {folder}/build/mpiexec;;
meet) touch $out/here; for i in $(seq 600); do
    [ $(ls {folder}/out/*/*/here | wc -l) -ge 2 ] && exec {gradwire} "$@"; sleep 0.05; done
    exit 1;;
esac
exec {gradwire} "$@"
"""


def heed_signals():
    """A shell that starts the tests in the background, or nohup(1), has them ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def read(path):
    with open(path, encoding="utf-8", errors="surrogateescape") as file:  # others' command lines
        return file.read()


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Study(gwrun.Case):
    probe = "false"  # what a probe of a cell is; most tests are quicker without

    def setUp(self):
        super().setUp()
        self.enterContext(mock.patch.dict(os.environ))  # what a test changes of it is undone
        self.out, self.spec, self.build = self.path("out"), self.path("spec.yaml"), self.path("build")
        os.mkdir(self.build)
        os.symlink(gwrun.MPIEXEC, os.path.join(self.build, "mpiexec"))
        self.script("build/gradwire", WRAPPER)

    def script(self, name, text):
        path = self.path(name)
        gwrun.write(path, text.format(folder=self.dir, gradwire=gwrun.GRADWIRE, probe=self.probe,
                                      mpiexec=gwrun.MPIEXEC, train=TRAIN))
        os.chmod(path, stat.S_IRWXU)

    def write(self, text):
        gwrun.write(self.spec, text)

    def words(self, *words, out=None):
        return [sys.executable, RUN, self.spec, "--out", out or self.out, "--build", self.build,
                *words]

    def call(self, *words, **more):
        return gwrun.finished(self.words(*words, **more))

    def begin(self, *words):
        process = subprocess.Popen(self.words(*words), stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL,
                                   preexec_fn=heed_signals)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def spawn(self, *words):
        """A runner that is at work on its first run."""
        before = len(self.starts())
        process = self.begin(*words)
        self.until(lambda: len(self.starts()) > before or process.poll() is not None)
        return process

    def until(self, true, seconds=300):
        end = time.monotonic() + seconds
        while not true():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)

    def starts(self):
        """The run folders that were begun, as often as they were."""
        path = self.path("starts")
        return [os.path.relpath(line, self.out) for line in read(path).splitlines()
                ] if os.path.exists(path) else []

    def ranks(self):
        """Command lines that live of anything started for this test's runs."""
        found = []
        for path in glob.glob("/proc/[0-9]*/cmdline"):
            try:
                words = read(path).split("\0")
            except OSError:
                continue
            if any(word.startswith(self.out + "/b") for word in words):
                found.append(words)
        return found

    def records(self, out=None):
        """folder -> experiment.json"""
        out = out or self.out
        paths = glob.glob(os.path.join(glob.escape(out), "b*", "*", "experiment.json"))
        return {os.path.relpath(os.path.dirname(p), out): json.loads(read(p)) for p in paths}

    def states(self):
        return {r["cell"]: r["state"] for r in self.records().values()}

    def states_of_all(self):
        """Of each planned run, in order; None: it has not begun."""
        records = self.records()
        return [records[f]["state"] if f in records else None for f in self.planned()]

    def planned(self):
        study = json.loads(read(os.path.join(self.out, "study.json")))
        return [run["folder"] for run in study["runs"]]


class Runs(Study):
    def test_every_cell_once_and_blocked(self):
        self.write(f"""
claim: a test
ranks: 2
seeds: [1, 2]
repetitions: 2
base: {TRAIN}
factors:
  compress: [none, qsgd]
  rate of learning: {{small: --lr 0.05 --epochs 1, absurd: --lr 1000 --weight-decay 0.9 --epochs 3}}
skip:
  - {{compress: qsgd, rate of learning: absurd}}
""")
        done = self.call()
        self.assertEqual(done.returncode, 0, done.stderr)  # to diverge is a result
        self.assertEqual(self.starts(), self.planned())
        self.assertEqual(len(set(self.planned())), 4 * 3)
        records = self.records()
        self.assertEqual([records[f]["block"] for f in self.planned()],
                         [block for block in range(4) for _ in range(3)])
        for folder, record in records.items():
            absurd = record["levels"]["rate of learning"] == "absurd"
            self.assertEqual(record["state"], "diverged" if absurd else "done", record)
            self.assertEqual(len(record["attempts"]), 1)
            self.assertEqual(folder.split("-s")[1].split("/")[0], str(record["seed"]))
            if not absurd:
                run = json.loads(read(os.path.join(self.out, folder, "run.json")))
                self.assertEqual(run["seed"], record["seed"])
                self.assertFalse(os.path.exists(os.path.join(self.out, folder, "log.txt")))
        self.assertIn("12 runs: 8 done, 4 diverged", done.stdout)

        self.assertIn("complete", gwrun.quiet(self.call("--resume")))
        self.assertEqual(len(self.starts()), 12)

    def test_gradients_too_large_for_the_codec(self):
        """They diverge as surely as those that are not finite."""
        self.write(f"""
claim: a test
ranks: 2
base: {TRAIN} --lr 1e6 --momentum 0.9 --compress fp16 --epochs 3
factors:
  output: [softmax]
""")
        done = self.call()
        self.assertEqual(done.returncode, 0, done.stderr)
        (record,) = self.records().values()
        self.assertEqual(record["state"], "diverged", record)
        self.assertIn("larger than exchange and update carry", record["attempts"][0]["message"])

    def test_failures(self):
        """Each way to fail is recorded, tried again as often as said, and listed at the end."""
        self.write(f"""
claim: a test
retries: 1
base: {TRAIN} --epochs 1
factors:
  env.FAKE: [null, die, flaky, chatty]
""")
        done = self.call()
        self.assertEqual(done.returncode, 1)
        by = {r["levels"]["env.FAKE"]: r for r in self.records().values()}
        self.assertEqual({k: r["state"] for k, r in by.items()},
                         {"unset": "done", "die": "failed", "flaky": "failed", "chatty": "done"})
        self.assertEqual({k: len(r["attempts"]) for k, r in by.items()},
                         {"unset": 1, "die": 2, "flaky": 2, "chatty": 1})
        self.assertNotEqual(by["die"]["attempts"][0]["status"], 0)
        last = by["flaky"]["attempts"][-1]
        self.assertEqual((last["status"], last["message"]), (1, "not yet"))
        failed = [line for line in done.stderr.splitlines() if "failed: b00" in line]
        self.assertEqual(len(failed), 2, done.stderr)
        logs = {k: os.path.join(self.out, "b00-s1", r["cell"], "log.txt") for k, r in by.items()}
        self.assertEqual(read(logs["flaky"]), "not yet\n")
        self.assertFalse(os.path.exists(logs["unset"]))
        said = read(logs["chatty"])
        self.assertTrue(said.startswith("line 1\n") and said.endswith("line 20000\n"))
        self.assertLess(len(said), 70 << 10)

        before = len(self.starts())
        again = self.call("--resume")
        self.assertEqual(again.returncode, 1)
        self.assertEqual(len(self.starts()), before)  # their attempts are spent

        third = self.call("--resume", "--retry-failed")
        self.assertEqual(third.returncode, 1)
        self.assertEqual(self.states()[by["flaky"]["cell"]], "done")
        self.assertEqual(len(self.records()["b00-s1/" + by["die"]["cell"]]["attempts"]), 4)

    def test_timeout(self):
        self.write(f"""
claim: a test
ranks: 2
timeout: 2 s
base: {TRAIN} --epochs 1
factors: {{env.FAKE: [hang]}}
""")
        done = self.call()
        self.assertEqual(done.returncode, 1)
        self.assertIn("timed out\n", done.stderr)
        self.assertEqual(self.ranks(), [])  # though they ignore SIGTERM
        [record] = self.records().values()
        self.assertEqual((record["state"], record["attempts"][0]["timed_out"]), ("failed", True))
        self.assertGreaterEqual(record["attempts"][0]["seconds"], 2)

    def test_program_vanishes(self):
        """As while it is rebuilt: what cannot be started is a failure like others."""
        self.write(f"""
claim: a test
retries: 1
repetitions: 2
base: {TRAIN} --epochs 1
factors: {{env.FAKE: [rebuild]}}
""")
        done = self.call()
        self.assertEqual(done.returncode, 1)
        self.assertEqual(self.states_of_all(), ["done", "failed"])
        self.assertIn("not started, 2 attempts: ", done.stderr)
        os.symlink(gwrun.MPIEXEC, os.path.join(self.build, "mpiexec"))
        record = os.path.join(self.out, self.planned()[0], "experiment.json")
        os.truncate(record, 100)  # nothing can be known of this one
        self.assertEqual(self.call("--resume").returncode, 1)
        self.assertEqual(self.starts(), [self.planned()[0]] * 2)
        self.assertEqual(self.states_of_all(), ["done", "failed"])

    def test_jobs(self):
        self.write(f"""
claim: a test
base: {TRAIN} --epochs 1
factors: {{momentum: [0, 0.5], env.FAKE: [meet]}}
""")
        gwrun.refusal(self.call("--jobs", "999"), "--jobs 999", "--oversubscribe")
        self.assertFalse(os.path.exists(self.out))
        done = self.call("--jobs", "2", "--oversubscribe")  # each waits for the other
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(done.stderr.count("disturb each other"), 1)
        self.assertEqual({r["jobs"] for r in self.records().values()}, {2})


class Interruptions(Study):
    def setUp(self):
        super().setUp()
        self.write(f"""
claim: a test
ranks: 2
seeds: [1, 2]
base: {TRAIN} --epochs 10
factors: {{compress: [none, qsgd, fp16]}}
""")

    def results(self, out):
        """folder -> what training came to: the same from the same seed."""
        return {folder: read(os.path.join(out, folder, "epochs.csv")).split(",")[-1]
                for folder in self.records(out)}

    def interrupt(self, number, seed):
        """Until the study is complete, the runner is ended by `number` at some moment."""
        chance = random.Random(seed)
        kept, ends = {}, 0
        while True:
            runner = self.spawn("--resume")
            time.sleep(chance.choice((0, 0.05, 0.2)) * chance.random())
            runner.send_signal(number)
            text = runner.communicate(timeout=300)
            self.until(lambda: not self.ranks())
            if runner.returncode == 0:
                break
            ends += 1
            for folder, moment in kept.items():
                self.assertEqual(self.modified(folder), moment, "made twice")
            kept = {f: self.modified(f) for f, r in self.records().items() if r["state"] == "done"}
            if number == signal.SIGINT:
                self.assertEqual(runner.returncode, 130, text)
                self.assertIn("resume with: ", text[1])
                left = sum(state != "done" for state in self.states_of_all())
                self.assertRegex(text[0], rf"6 runs: .*\b{left} left" if left else "6 runs: 6 done")
                self.assertNotIn("running", self.states().values())
            if ends == 3:
                break
        gwrun.well(self.call("--resume"))
        return ends

    def modified(self, folder):
        return os.stat(os.path.join(self.out, folder, "run.json")).st_mtime_ns

    def test_resume(self):
        whole = self.path("whole")
        self.assertEqual(self.call(out=whole).returncode, 0)
        expected = self.results(whole)
        self.assertEqual(len(expected), 6)
        for number in (signal.SIGINT, signal.SIGKILL):
            seed = random.randrange(10**6)
            with self.subTest(signal=number, seed=seed):
                os.unlink(self.path("starts"))
                ends = self.interrupt(number, seed)
                self.assertGreater(ends, 0)
                self.assertEqual(self.results(self.out), expected)
                self.assertEqual(sorted(expected), sorted(self.planned()))
                for folder, record in self.records().items():
                    attempts = record["attempts"]
                    self.assertEqual(record["state"], "done")
                    self.assertEqual([a["interrupted"] for a in attempts],
                                     [True] * (len(attempts) - 1) + [False])
                    self.assertEqual(attempts[-1]["message"], "")
                    for attempt in attempts[:-1]:
                        self.assertRegex(attempt["message"], "^(gradwire: stopped by SIGTERM .*)?$")
                    # One that was interrupted may not have come to its first line.
                    self.assertIn(self.starts().count(folder), range(1, len(attempts) + 1))
                self.assertEqual(set(self.starts()), set(expected))
                shutil.rmtree(self.out)

    def test_cut_short(self):
        """A run that a signal ends closes its folder whole; that is no result all the same."""
        self.write(read(self.spec).replace("--epochs 10", "--epochs 1000000 --checkpoint-every 5")
                   .replace("ranks: 2", "ranks: 1"))
        runner = self.spawn()
        self.until(lambda: glob.glob(os.path.join(self.out, "*", "*", "model.ckpt.d", "step-*")))
        runner.send_signal(signal.SIGTERM)
        runner.communicate(timeout=300)
        [(folder, record)] = self.records().items()
        self.assertEqual(gwrun.run_json(self.out, folder)["results"]["stopped_by"], "SIGTERM")
        self.assertEqual(record["state"], "interrupted")
        self.assertIn("stopped by SIGTERM", record["attempts"][0]["message"])

    def test_two_runners(self):
        os.environ["FAKE"] = "hang"
        first = self.spawn()
        gwrun.refusal(self.call("--resume"), self.out, f"process {first.pid} on ", "--out")
        first.send_signal(signal.SIGTERM)
        self.assertIn("SIGTERM: resume with: ", first.communicate(timeout=300)[1])
        self.assertEqual(first.returncode, 143)
        self.assertEqual(self.ranks(), [])  # though they ignore SIGTERM
        self.assertEqual([r["state"] for r in self.records().values()], ["interrupted"])

    def test_another_study(self):
        os.mkdir(self.out)
        gwrun.write(os.path.join(self.out, "mine.txt"), "")
        gwrun.refusal(self.call(), "other things than a study (mine.txt)", "--out")
        self.assertEqual(os.listdir(self.out), [".lock", "mine.txt"])
        os.unlink(os.path.join(self.out, "mine.txt"))
        os.environ["FAKE"] = "hang"
        first = self.spawn()
        os.environ.pop("FAKE")
        first.kill()
        gwrun.refusal(self.call(), "--resume")
        self.write(read(self.spec).replace("[1, 2]", "[1, 3]"))
        gwrun.refusal(self.call("--resume"), "another text of the spec", "--out")
        self.assertEqual(len(self.starts()), 1)
        self.write(read(self.spec).replace("[1, 3]", "[1, 2]"))
        for words in ([], ["--dry-run"]):
            os.environ["OTHER"] = "yes"
            gwrun.refusal(self.call("--resume", *words), "begun with another build", "than 9 (abc) in")
            del os.environ["OTHER"]
        self.script("build/gradwire", WRAPPER + "# the same commit, built again\n")
        gwrun.refusal(self.call("--resume"), "begun with another build", "--build")
        self.script("build/gradwire", WRAPPER)
        gwrun.well(self.call("--resume", "--only", "compress=fp16"))
        self.assertEqual([self.records()[f]["state"] for f in self.planned() if "fp16" in f],
                         ["done"] * 2)
