"""A run's folder belongs to one run. A second run is refused at any moment and damages nothing; a
killed run leaves the folder free."""

import json
import os
import shutil
import signal
import subprocess
import unittest

import faultcase
import gwrun

TINY = ["--data", "synthetic:samples=600,features=20,classes=4,test=0.2", "--layers", "12,8",
        "--batch", 20, "--epochs", 2, "--ceilings", "off", "--overhead", 0, "--profile", "timers"]
ENDLESS = [*TINY, "--epochs", 1000000, "--inject-skew", "0:5ms"]
KEPT = ["--checkpoint-every", 4]


PIDS = faultcase.namespace("--pid", "--fork", "--mount-proc")


class Folder(gwrun.Case):
    def setUp(self):
        super().setUp()
        self.out = self.path("runs", "a")

    def start(self, *words, ranks=1):
        """A run that holds the folder."""
        run = self.enterContext(faultcase.Started(ranks, "--out", self.out, *words,
                                                  log=self.path("log")))
        run.await_line("parameters;")
        return run

    def refused(self, *words, ranks=0):
        return gwrun.refusal(gwrun.run(ranks, "train", "--out", self.out, *TINY, *words))

    def check_whole(self, seed):
        """All files are of the run with this seed."""
        run = gwrun.run_json(self.out)
        self.assertEqual(run["seed"], seed)
        self.assertEqual(len(gwrun.batches(self.out)),
                         run["results"]["steps"] * run["machine"]["ranks"])
        last = faultcase.columns(self.out, "epochs.csv", ("replica_hash",))[-1][0]
        self.assertEqual(last, run["results"]["replica_hash"])
        self.assertNotIn(".lock", os.listdir(self.out))


class Claim(Folder):
    def test_second_is_refused(self):
        """On any number of ranks, in every mode, even before the first has written a checkpoint or a
        row."""
        run = self.start(*ENDLESS, "--seed", 7, ranks=2)
        for ranks, *words in ((0,), (0, "--overwrite"), (2, "--overwrite"), (3, "--resume", "auto"),
                              (0, "--resume", "auto", *KEPT)):
            said = self.refused(*words, ranks=ranks)
            self.assertIn(f"--out {self.out}: another run is writing there (process ", said)
        self.assertEqual(gwrun.run(1, "train", "--out", self.out, *TINY, "--check").returncode, 0)
        run.send(signal.SIGTERM, 0)
        run.status()
        self.check_whole(7)
        self.assertIn("holds a run already", self.refused())

    def test_at_the_same_moment(self):
        """Both start into a folder that does not exist yet: one of them gets it, and all files are from
        that one."""
        for first in range(1, 13, 4):
            self.out = self.path(str(first), "a", "b")
            runs = {seed: subprocess.Popen(
                [gwrun.GRADWIRE, "train", "--quiet", "--out", self.out, *map(str, TINY), "--seed",
                 str(seed)], stderr=subprocess.PIPE, text=True)
                for seed in range(first, first + 4)}
            said = {seed: run.communicate(timeout=gwrun.HANG_S)[1] for seed, run in runs.items()}
            ended = sorted(run.returncode for run in runs.values())
            self.assertEqual(ended, [0, 2, 2, 2], said)
            self.assertEqual([said[seed].count("\n") for seed in said if runs[seed].returncode],
                             [1, 1, 1], said)
            self.check_whole(next(seed for seed in runs if runs[seed].returncode == 0))

    def test_killed_leaves_it_free(self):
        run = self.start(*ENDLESS, *KEPT, ranks=2)
        faultcase.await_true(lambda: os.path.exists(os.path.join(self.out, "batches.csv.part")))
        run.kill()
        self.assertNotEqual(run.status(), 0)
        self.assertIn(".lock", os.listdir(self.out))
        self.assertIn("was interrupted", self.refused())
        gwrun.train(2, self.out, *TINY, "--overwrite", "--seed", 1)
        self.check_whole(1)

    def test_refused_leaves_nothing(self):
        """A folder made for a run that cannot start is removed; one that existed stays."""
        self.refused("--data", self.path("no-data"))
        self.assertEqual(os.listdir(os.path.dirname(self.out)), [])
        os.mkdir(self.out)
        self.refused("--data", self.path("no-data"))
        self.assertEqual(os.listdir(self.out), [])

    def test_link_in_the_place_of_checkpoints(self):
        """What it leads to is another's: no start replaces, resumes or empties it."""
        gwrun.train(1, self.path("other"), *TINY, *KEPT)
        there = self.path("other", "model.ckpt.d")
        before = sorted(os.listdir(there))
        for words in ((), ("--overwrite",), ("--resume", "auto")):
            gwrun.train(1, self.out, *TINY, *KEPT, "--overwrite")
            shutil.rmtree(os.path.join(self.out, "model.ckpt.d"))
            os.symlink(there, os.path.join(self.out, "model.ckpt.d"))
            said = self.refused(*words, *KEPT)
            self.assertIn(f"--out {self.out}: model.ckpt.d is a symbolic link", said)
            self.assertEqual(sorted(os.listdir(there)), before)
            os.unlink(os.path.join(self.out, "model.ckpt.d"))
        link = self.path("link")
        os.symlink(self.path("other"), link)
        gwrun.train(1, link, *TINY, *KEPT, "--overwrite", "--seed", 3)
        self.out = self.path("other")
        self.check_whole(3)

    def test_lock_that_cannot_be(self):
        os.makedirs(os.path.join(self.out, ".lock"))
        self.assertIn(f"cannot lock {self.out}/.lock: Is a directory", self.refused())

    @unittest.skipUnless(PIDS, "no namespace of process numbers is allowed here")
    def test_other_process_numbers(self):
        """As in a container: each process sees other process numbers."""
        command = [*PIDS, gwrun.GRADWIRE, "train", "--out", self.out, *ENDLESS, *KEPT, "--seed", 3]
        with subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL) as run:
            try:
                faultcase.await_true(lambda: os.path.exists(os.path.join(self.out, ".lock"))
                                     or run.poll() is not None)
                for way in ("--overwrite", "--quiet"):
                    self.assertIn("another run is writing there", self.refused(way))
                faultcase.await_true(lambda: os.path.exists(os.path.join(self.out, "model.ckpt.d"))
                                     or run.poll() is not None)  # before a step it would write nothing
            finally:
                for pid in faultcase.ranks_of(run.pid).values():
                    os.kill(pid, signal.SIGTERM)
                run.wait(timeout=gwrun.HANG_S)
        self.check_whole(3)


# Who removes an older run's files stops among them, at one that there is not.
STOPS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <string.h>
int unlinkat(int folder, const char *name, int flags) {
    static int (*real)(int, const char *, int), stops;
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "unlinkat");
    if (strcmp(name, "trace.json") == 0 && stops++ == 0)
        raise(SIGSTOP);
    return real(folder, name, flags);
}
"""
PROFILE = os.path.join(gwrun.SOURCE, "profiles", "resnet18.json")


class Lost(Folder):
    """A folder that is taken from under a run: it ends by itself with one line, and whoever is there
    now has every file as it was."""

    SAID = {"removed": "was removed while this run was writing there: its results are lost",
            "moved": "was moved while this run was writing there: what it had written is in {}.old",
            "taken": ".lock was removed while this run was writing there, and another may have begun: "
                     "this one ends, its results are lost"}

    def take(self, way):
        if way == "removed":
            shutil.rmtree(self.out)
        elif way == "moved":
            os.rename(self.out, self.out + ".old")
        else:
            os.unlink(os.path.join(self.out, ".lock"))

    def check_lost(self, way, run, *more, ends=False):
        """The run sleeps while it happens, and goes on when another has come and gone."""
        pids = list(run.ranks().values())
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        self.take(way)
        gwrun.train(2, self.out, *TINY, "--seed", 5, *more, *(["--overwrite"] if way == "taken" else []))
        before = gwrun.contents(self.out)
        if ends:
            os.kill(pids[0], signal.SIGTERM)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        self.assertEqual(run.status(), 1, run.text())
        self.assertEqual(run.text().count("gradwire: "), 1, run.text())
        self.assertIn(f"gradwire: --out {self.out}: ", run.text())
        self.assertIn(self.SAID[way].format(self.out), run.text())
        self.assertEqual(gwrun.contents(self.out), before)
        self.check_whole(5)

    def test_training(self):
        """Whatever it has to write next: rows, a checkpoint, or all of its end."""
        endings = [("--trace", "--collectives"), ("--comm", "iallreduce"), KEPT, ()]
        for way in self.SAID:
            for number, words in enumerate(endings):
                with self.subTest(way=way, words=words):
                    self.out = self.path(way, str(number))
                    with self.start(*ENDLESS, *words, ranks=2) as run:
                        self.check_lost(way, run, *(words if words is KEPT else ()), ends=number < 2)

    def test_library(self):
        """While it makes way for itself, too: what it would remove next may be another's by then."""
        more = {"env": gwrun.preload(self.dir, STOPS), "log": self.path("log"), "program": "replay"}
        for way in self.SAID:
            with self.subTest(way=way):
                self.out = self.path("of-library", way)
                with faultcase.Started(2, PROFILE, "--out", self.out, "--steps", 3000, "--speed", 20, **more) as run:
                    faultcase.await_true(lambda: faultcase.stopped(run.ranks()[0]))
                    self.check_lost(way, run)


class Conclusion(gwrun.Case):
    """A run that was killed after its last step: files that only steps can fill stay as they are, and
    the rest is written."""

    WORDS = [*TINY, "--checkpoint-every", 1000, "--trace", "--collectives", "--compress-stats", 5,
             "--compress", "topk:ratio=0.1"]
    KEPT = ("trace.json", "matrix.csv")
    SAME = ("batches.csv", "codec.csv", "collectives.csv", "model.gw")

    def setUp(self):
        super().setUp()
        self.before = gwrun.train(2, self.out, *self.WORDS)
        self.files = {name: gwrun.read_bytes(self.out, name) for name in self.KEPT + self.SAME}

    def remove(self, *names):
        for name in names:
            os.unlink(os.path.join(self.out, name))

    def steps_of_trace(self):
        events = json.loads(gwrun.read_bytes(self.out, "trace.json"))["traceEvents"]
        return {event["args"]["step"] for event in events if "step" in event.get("args", {})}

    def again(self, *words):
        return gwrun.train(2, self.out, *self.WORDS, "--resume", "auto", *words)

    def check_same(self, names):
        for name in names:
            self.assertEqual(gwrun.read_bytes(self.out, name), self.files[name], name)

    def test_killed_at_any_file(self):
        """The last files do not exist yet, one more each time."""
        self.remove("run.json")
        run = self.again()
        self.assertEqual(run["results"]["traffic"], self.before["results"]["traffic"])
        self.check_same(self.files)
        self.remove("run.json", "model.gw")
        for name in ("batches.csv", "epochs.csv", "codec.csv", "collectives.csv"):
            path = os.path.join(self.out, name)
            os.rename(path, f"{path}.part")
        run = self.again()
        self.check_same(self.files)
        for key in ("steps", "replica_hash", "test_accuracy", "wire_bytes", "traffic"):
            self.assertEqual(run["results"][key], self.before["results"][key], key)
        self.remove("run.json", "trace.json")
        self.assertEqual(self.again()["results"]["traffic"], self.before["results"]["traffic"])
        self.check_same(("matrix.csv",) + self.SAME)
        gwrun.write(os.path.join(self.out, "matrix.csv"), "rank,peer,messages,bytes,source\n0,1,?\n")
        self.assertEqual(self.again()["results"]["traffic"]["messages"], 0)

    def test_run_that_was_whole(self):
        """Its figures of ranks, too."""
        run = self.again()
        for key in ("ranks", "straggler", "traffic", "exchanges_dropped"):
            self.assertEqual(run["results"][key], self.before["results"][key], key)
        self.assertEqual(run["results"]["summary"]["memory_s"]["batches"],
                         self.before["results"]["summary"]["memory_s"]["batches"])
        self.check_same(self.files)

    def test_what_other_steps_left_goes(self):
        """Of a run that is resumed, and of one that is resumed from before its end."""
        steps = max(self.steps_of_trace())
        self.again("--epochs", 3)
        self.assertEqual(self.steps_of_trace() - {0}, set(range(steps + 1, 3 * steps // 2 + 1)))
        kept = sorted(os.listdir(os.path.join(self.out, "model.ckpt.d")))
        gwrun.train(2, self.out, *self.WORDS, "--steps", steps, "--resume",
                    os.path.join(self.out, "model.ckpt.d", kept[0]))
        self.assertEqual(self.steps_of_trace() - {0}, set())
