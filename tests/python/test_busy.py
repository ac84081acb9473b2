"""A busy machine is noticed: by doctor, train, replay, bench and the experiment runner, and by what reads their
folders. The machine is made up: files that stand for those of /proc, whose counts grow with each reading."""

import contextlib
import json
import os
import tempfile
import threading

import gwrun
from test_experiments import TRAIN, Study

from reporting import info, runs, verdicts

CPUS = sorted(os.sched_getaffinity(0))
RUN = ["--data", "synthetic:samples=400,features=16,classes=4", "--layers", "8", "--batch", "40", "--steps", "30",
       "--overhead", "0", "--ceilings", "off"]
FULL = f"other processes took {len(CPUS):.2f} of {len(CPUS)} CPUs"
ENOUGH = 10 ** 12  # ticks: more than any machine has between two readings


class Machine:
    """A folder for GRADWIRE_PROC. `stat` is a pipe for each reader; whether others have taken all CPUs since the
    reader before is what `busy` says, for two readers after another, and at the end the last again."""

    def __init__(self, folder, *busy, load="15.25 9.50 4.00 17/321 4711\n"):
        self.busy, self.readings, self.dir = busy, 0, folder
        self.stat = os.path.join(folder, "stat")
        os.makedirs(os.path.join(folder, "pressure"))
        gwrun.write(os.path.join(folder, "loadavg"), load)
        os.mkfifo(self.stat)
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        ticks = ENOUGH
        with contextlib.suppress(OSError):  # at the end the folder goes
            while True:
                with open(self.stat, "w", encoding="utf-8") as file:
                    os.unlink(self.stat)  # the next reader has a pipe of its own
                    os.mkfifo(self.stat)
                    ticks += ENOUGH * self.busy[min(self.readings // 2, len(self.busy) - 1)]
                    self.readings += 1
                    file.write("".join(f"cpu{cpu} {ticks} 0 0 1 0 0 0 0 0 0\n" for cpu in CPUS) + "intr 0\n")

    def environment(self):
        return {**os.environ, "GRADWIRE_PROC": self.dir}


class Case(gwrun.Case):
    def setUp(self):
        super().setUp()
        self.out = self.path("out")

    def machine(self, *busy, **more):
        return Machine(tempfile.mkdtemp(dir=self.dir), *busy, **more)

    def said_by(self, machine, ranks, *words):
        done = gwrun.clean(ranks, *words, env=machine.environment())
        return done.stdout

    def train(self, machine, *words):
        """What it said, and run.json's machine.busy."""
        said = self.said_by(machine, 2, "train", *RUN, "--out", self.out, "--overwrite", *words)
        return said, gwrun.run_json(self.out)["machine"]["busy"]


class Commands(Case):
    def test_doctor(self):
        for busy, verdict in ((True, "problem"), (False, "ok")):
            said = " ".join(self.said_by(self.machine(busy), 2, "doctor").split())
            self.assertRegex(said, rf"{verdict} busy other processes took {len(CPUS) * busy:.2f} of {len(CPUS)} CPUs, "
                             r"a hypervisor absent \(over [\d.]+ s; load 15\.2, other tasks runnable 15, CPU pressure "
                             r"absent, throttled absent\)" + (" -> end what else runs" if busy else " ok "))
        said = " ".join(gwrun.run(1, "doctor").stdout.split())  # no figures at all
        self.assertIn("ok busy other processes took absent, a hypervisor absent (over ", said)

    def test_doctor_for_programs(self):
        found = json.loads(self.said_by(self.machine(True), 1, "doctor", "--busy", "--threads", str(len(CPUS))))
        self.assertEqual((found["others"], found["need"], found["lack"], found["warned"]),
                         (len(CPUS), len(CPUS), 1, True))
        self.assertEqual((found["steal"], found["pressure"], found["throttled"]), (None,) * 3)
        self.assertGreaterEqual(found["seconds"], 0.4)
        self.assertTrue(found["text"].startswith(FULL))

    def test_train(self):
        said, busy = self.train(self.machine(True))
        before, during = (f"warning: {when} this run {FULL}, " for when in ("before", "during"))
        self.assertLess(said.index(" parameters; "), said.index(before))
        self.assertLess(said.index(before), said.index("\nepoch 1"))
        self.assertLess(said.index("\nstep "), said.index(during))
        for when in ("before", "during"):
            self.assertEqual((busy[when]["others"], busy[when]["lack"]), (len(CPUS), 1))
            self.assertIs(busy[when]["warned"], True)
            self.assertIn(f"{when} this run {busy[when]['text']}: its times are not to be trusted", said)
        for tool in ("show", "table"):
            told = gwrun.run(1, tool, self.out).stdout
            self.assertIn(f": during this run {busy['during']['text']}: its times are not to be trusted",
                          " ".join(told.split()))
        self.assertIn("out ?", told)
        results = runs.read_results(self.out)[0]
        self.assertIn(info.MARK_BUSY, results.cells[0].marks)
        self.assertTrue(any(busy["during"]["text"] in line for line in verdicts.warnings(results)))

    def test_idle_train(self):
        """Its own ranks are nobody else, and what is not told is absent."""
        for machine in (self.machine(False), self.machine(False, load="0.00 0.00 0.00 1/99 1\n")):
            said, busy = self.train(machine)
            self.assertNotIn("other processes", said)
            for figures in busy.values():
                self.assertIn(figures["others"], (0, None))  # None: too short to tell
                self.assertIs(figures["warned"], False)
            for tool in ("show", "table"):
                self.assertNotIn("other processes", gwrun.run(1, tool, self.out).stdout)
        said = gwrun.run(2, "train", *RUN, "--out", self.out, "--overwrite").stdout
        self.assertNotIn("other processes", said)
        for figures in gwrun.run_json(self.out)["machine"]["busy"].values():
            self.assertEqual([figures[key] for key in ("others", "steal", "pressure", "throttled", "load", "runnable",
                                                       "lack")], [None] * 7)

    def test_replay_and_bench(self):
        profile = os.path.join(gwrun.SOURCE, "profiles", "resnet18.json")
        said = self.said_by(self.machine(True), 2, "replay", profile, "--steps", "2", "--speed", "10", "--out", self.out)
        self.assertIn(f"warning: during this run {FULL}, ", said)
        self.assertIs(gwrun.run_json(self.out)["machine"]["busy"]["before"], None)  # the library's run
        path = self.path("bench.json")
        said = self.said_by(self.machine(True), 2, "bench", "allreduce", "--sizes", "4K", "--algos", "sra",
                            "--repeats", "5", "--json", path)
        self.assertTrue(said.startswith(f"warning: before this benchmark {FULL}, "), said)
        self.assertIn(f"\nwarning: during this benchmark {FULL}, ", said)
        self.assertEqual(gwrun.read_json(path)["busy"]["during"]["others"], len(CPUS))


class Runner(Study):
    """experiments/run looks before its runs, by `gradwire doctor --busy`."""

    def study(self, machine, *words, runs=1):
        self.write(f"claim: a test\nrepetitions: {runs}\nbase: {TRAIN} --steps 20\nfactors: {{ranks: [{len(CPUS)}]}}\n")
        return gwrun.finished(self.words(*words), env=machine.environment())

    machine = Case.machine

    def test_goes_on(self):
        done = self.study(self.machine(True), runs=2)
        self.assertEqual((done.returncode, len(self.starts())), (0, 2))
        self.assertRegex(done.stderr, rf"^experiments/run: the machine is busy: {FULL}, .*: its times are not to be "
                         r"trusted\n$")  # once

    def test_waits(self):
        """Until nothing else runs: two looks, and one before the second run."""
        machine = self.machine(True, True, False, True, False)
        done = self.study(machine, "--when-busy", "wait:1h", runs=2)
        self.assertEqual((done.returncode, len(self.starts())), (0, 2))
        lines = done.stderr.splitlines()
        self.assertEqual(len(lines), 2, done.stderr)
        for line in lines:
            self.assertRegex(line, rf"the machine is busy: {FULL}, .*: waiting for at most (60|61) min$")
        self.assertNotIn("trusted", done.stderr)

    def test_waits_no_longer(self):
        done = self.study(self.machine(True), "--when-busy", "wait:1s", runs=2)
        self.assertEqual((done.returncode, len(self.starts())), (0, 2))
        lines = done.stderr.splitlines()
        self.assertRegex(lines[0], r": waiting for at most 1 s$")
        self.assertRegex(lines[1], r": its times are not to be trusted$")
        self.assertEqual(len(lines), 2, done.stderr)

    def test_stops(self):
        done = self.study(self.machine(True), "--when-busy", "stop")
        self.assertEqual((done.returncode, self.starts()), (1, []))
        self.assertRegex(done.stderr, rf"the machine is busy: {FULL}, .*: when that has ended, resume with: "
                         r".*--resume --when-busy stop --build \S+\n$")
        done = self.study(self.machine(False), "--resume", "--when-busy", "stop")
        self.assertEqual((done.returncode, done.stderr, len(self.starts())), (0, "", 1))

    def test_words(self):
        for words in ("soon", "wait:", "wait:5", "wait:-1s", "go:1s"):
            done = self.study(self.machine(False), "--when-busy", words)
            self.assertEqual((done.returncode, len(done.stderr.splitlines()[-1:])), (2, 1))
            self.assertIn("must be go, stop, wait or wait:TIME", done.stderr)
