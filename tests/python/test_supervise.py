"""experiments/supervise: ranks are killed and the run ends as if undisturbed; and commands that cannot
be supervised."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import faultcase
import gwrun
import killcase

RUN = ["--data", "synthetic:samples=600,features=8,classes=3,seed=1", "--layers", "6", "--batch", 20,
       "--compress", "topk", "--ceilings", "off", "--overhead", 0, "--papi-group", "none"]
KEPT = ["--checkpoint-every", 5]
# So that there is time to kill: a checkpoint is complete up to 0.4 s after its step.
SLOW = ["--inject-skew", "0:50ms"]


def supervise(*words):
    program = os.path.join(gwrun.SOURCE, "experiments", "supervise")
    return [sys.executable, "-B", program, *map(str, words)]


def last_step(out):
    """Of the newest checkpoint; -1: none."""
    return max(killcase.complete(out), default=-1)


class Supervise(gwrun.Case):

    def start(self, own, ranks, *words, **more):
        """A supervised run, which is killed if the test fails."""
        process = subprocess.Popen(
            supervise(*own, "--", *gwrun.command(ranks, "train", "--out", self.out, *words)),
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **more)

        def end():
            process.kill()
            process.communicate()

        self.addCleanup(end)
        return process

    def stop(self, process):
        """What it says when it ends of a SIGTERM."""
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=gwrun.HANG_S)[1]
        self.assertEqual(process.returncode, 128 + signal.SIGTERM, said)
        return said

    def kill_rank_after(self, process, step, which=-1):
        """Its last step was then `step` at least."""
        faultcase.await_true(lambda: last_step(self.out) >= step)
        step = last_step(self.out)
        os.kill(sorted(faultcase.ranks_of(process.pid).values())[which], signal.SIGKILL)
        return step

    def test_ends_as_if_nothing_had_been(self):
        whole = gwrun.train(2, self.path("whole"), *RUN, "--epochs", 2)
        process = self.start(["--restarts", 3, "--backoff", 0.1], 2, *RUN, *KEPT, *SLOW,
                             "--epochs", 2)
        step = self.kill_rank_after(process, 10)
        self.kill_rank_after(process, step + 1, which=0)  # the restarted one has got on
        said = process.communicate(timeout=gwrun.HANG_S)[1]
        self.assertEqual(process.returncode, 0, said)
        self.assertEqual(said.count("supervise:"), 2, said)
        run = gwrun.run_json(self.out)
        self.assertEqual(run["results"]["replica_hash"], whole["results"]["replica_hash"])
        self.assertEqual(run["results"]["steps"], whole["results"]["steps"])
        self.assertEqual(run["results"]["wire_bytes"], whole["results"]["wire_bytes"])
        self.assertEqual(run["results"]["summary"]["batches"],
                         whole["results"]["summary"]["batches"])
        self.check_rows(whole)
        self.check_history(run)

    def check_rows(self, whole):
        """Each rank and step once, in order, as in the run that nobody disturbed."""
        keys = ("rank", "epoch", "step", "samples", "loss", "logical_bytes", "wire_bytes")
        rows, others = gwrun.batches(self.out), gwrun.batches(self.path("whole"))
        self.assertEqual([[row[key] for key in keys] for row in rows],
                         [[row[key] for key in keys] for row in others])
        for rank in "01":
            starts = [float(row["t_start_s"]) for row in rows if row["rank"] == rank]
            self.assertEqual(starts, sorted(starts))
        names = set(os.listdir(self.out))
        self.assertFalse({name for name in names if name.endswith((".part", ".tmp"))})
        self.assertLessEqual({"batches.csv", "epochs.csv", "model.gw", "matrix.csv"}, names)
        epochs = [line.split(",") for line in gwrun.read(self.out, "epochs.csv").splitlines()[1:]]
        self.assertEqual([row[:2] for row in epochs], [["1", "25"], ["2", "50"]])
        self.assertEqual(epochs[-1][-1], whole["results"]["replica_hash"])
        self.assertLess(float(epochs[0][7]), float(epochs[1][7]))  # elapsed_s

    def check_history(self, run):
        ended = [one for one in run["interruptions"] if one["event"] == "ended"]
        resumed = [one for one in run["interruptions"] if one["event"] == "resumed"]
        self.assertEqual([one["event"] for one in run["interruptions"]], ["ended", "resumed"] * 2)
        self.assertEqual([one["attempt"] for one in ended], [1, 2])
        for one in ended:
            self.assertNotEqual(one["status"], 0)
            self.assertGreater(one["seconds"], 0)
        steps = [one["step"] for one in resumed]
        self.assertGreaterEqual(steps[0], 10)
        self.assertGreater(steps[1], steps[0])
        self.assertEqual(run["resumed"]["step"], steps[1])
        self.assertEqual(run["resumed"]["from_ranks"], 2)
        self.assertEqual(run["resumed"]["dropped"], [])
        self.assertEqual(run["checkpoints"]["every_steps"], 5)
        self.assertEqual(run["checkpoints"]["last_step"], run["results"]["steps"])

    def test_waits_for_the_folder(self):
        """Ranks on another host may outlive their launcher, and hold it for a while."""
        starts = self.path("starts")
        os.mkdir(self.out)
        with open(os.path.join(self.out, ".lock"), "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            process = subprocess.Popen(
                supervise("--restarts", 1, "--backoff", 0, "--", "sh", "-c",
                          f"echo >> {starts}; exit 3", "sh", "--out", self.out, *KEPT),
                stderr=subprocess.PIPE, text=True)
            self.addCleanup(process.kill)
            self.assertIn("restart 1 of 1", process.stderr.readline())
            time.sleep(0.3)
            self.assertEqual(os.path.getsize(starts), 1)
        self.assertIn("no restart is left", process.communicate(timeout=gwrun.HANG_S)[1])
        self.assertEqual((process.returncode, os.path.getsize(starts)), (3, 2))

    def test_gives_up(self):
        """A launcher that dies takes its ranks with it, and no restart is left."""
        process = self.start(["--restarts", 0], 2, *RUN, *KEPT, *SLOW, "--epochs", 1000)
        faultcase.await_true(lambda: last_step(self.out) >= 5)
        ranks = faultcase.ranks_of(process.pid).values()
        launcher = int(gwrun.read(f"/proc/{process.pid}/task/{process.pid}/children").split()[0])
        os.kill(launcher, signal.SIGKILL)
        said = process.communicate(timeout=gwrun.HANG_S)[1]
        self.assertEqual(process.returncode, 128 + signal.SIGKILL, said)
        self.assertIn("no restart is left of 0", said)
        self.assertEqual([pid for pid in ranks if os.path.exists(f"/proc/{pid}")], [])
        ended = json.loads(gwrun.read(self.out, "interruptions.jsonl"))
        self.assertEqual((ended["event"], ended["signal"], ended["status"]),
                         ("ended", signal.SIGKILL, None))
        self.assertGreaterEqual(ended["checkpoint"], 5)

    def test_signal_is_handed_on(self):
        """A signal that ends supervise lets the run stop cleanly and not restart, whatever status its
        launcher returns."""
        for ranks in (1, 2):
            with self.subTest(ranks=ranks):
                self.out = self.path(f"run{ranks}")
                process = self.start([], ranks, *RUN, *KEPT, *SLOW, "--epochs", 1000,
                                     env={**os.environ, **gwrun.PATIENT})
                faultcase.await_true(lambda: last_step(self.out) >= 5)
                self.assertIn("as it was told to", self.stop(process))
                run = gwrun.run_json(self.out)
                self.assertEqual(run["results"]["stopped_by"], "SIGTERM")
                self.assertEqual(last_step(self.out), run["results"]["steps"])
                self.assertEqual(run["interruptions"], [])

    def test_signal_through_a_script(self):
        """A shell dies of the signal at once; the run behind it still ends cleanly."""
        script = '"$@"; exit $?'
        process = subprocess.Popen(
            supervise("--", "sh", "-c", script, "sh", *gwrun.command(
                2, "train", "--out", self.out, *RUN, *KEPT, *SLOW, "--epochs", 1000)),
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env={**os.environ, **gwrun.PATIENT})
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        faultcase.await_true(lambda: last_step(self.out) >= 5)
        self.stop(process)
        run = gwrun.run_json(self.out)
        self.assertEqual(run["results"]["stopped_by"], "SIGTERM")
        self.assertEqual(last_step(self.out), run["results"]["steps"])

    def test_signal_before_anything_is_told(self):
        """A command that ends with status 0 before its run has a run.json, or with an older one, is no
        success. The parent of supervise may have made it ignore the end of children."""
        script = 'trap "exit 0" TERM; : > "$0"; sleep 1000 & wait'
        os.mkdir(self.out)
        for older in (False, True):
            with self.subTest(older=older):
                begun = self.path(f"begun{older}")
                if older:
                    gwrun.write(os.path.join(self.out, "run.json"), '{"results":{"stopped_by":"epochs"}}')
                process = subprocess.Popen(
                    supervise("--", "sh", "-c", script, begun, "--out", self.out, *KEPT),
                    stderr=subprocess.PIPE, text=True,
                    preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
                self.addCleanup(process.communicate)
                self.addCleanup(process.kill)
                faultcase.await_true(lambda path=begun: os.path.exists(path))
                self.assertIn("as it was told to", self.stop(process))

    def test_overwrite_is_not_forgotten(self):
        """A start failed before or while it replaced the older run: that run must not be resumed."""
        for break_down in ("true", f"rm -r '{self.out}/model.ckpt.d/step-000000000025'"):
            with self.subTest(break_down=break_down):
                shutil.rmtree(self.dir)
                os.mkdir(self.dir)
                self.check_overwrite(break_down)

    def check_overwrite(self, break_down):
        gwrun.train(1, self.out, *RUN, *KEPT, "--epochs", 1, "--lr", 0.01)
        script = f'''test -e "$0" && exec "$@"; : > "$0"; {break_down}; exit 1'''
        done = gwrun.finished(
            supervise("--backoff", 0, "--", "sh", "-c", script, self.path("once"),
                      gwrun.GRADWIRE, "train", "--out", self.out, *RUN, *KEPT, "--epochs", 1,
                      "--overwrite"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("restart 1 of 10", done.stderr)
        run = gwrun.run_json(self.out)
        self.assertIsNone(run["resumed"])
        self.assertTrue(run["options"]["overwrite"])

    def test_folder_that_is_replaced(self):
        """Another run may be there by now: nothing is written there, and nothing started."""
        for remove in (f"rm -r '{self.out}'", f"mv '{self.out}' '{self.out}.old'"):
            script = f"{remove}; mkdir '{self.out}'; : > '{self.out}/another'; exit 1"
            done = gwrun.finished(
                supervise("--backoff", 0, "--", "sh", "-c", script, "gradwire", "--out", self.out, *KEPT))
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
            self.assertIn(f"{self.out} was removed or moved: no restart", done.stderr)
            self.assertEqual(os.listdir(self.out), ["another"])
            shutil.rmtree(self.out)

    def test_refused(self):
        kept = ["--out", self.out, "--checkpoint-every", 5]
        for words, said in (
                ([], "comes after '--'"),
                (["--"], "no command"),
                (["--", "gradwire", "train", "--checkpoint-every", 5], "no --out"),
                (["--", "gradwire", "train", "--out", self.out], "no --checkpoint-every"),
                (["--", "mpiexec", "gradwire", "train", *kept, ":", "other"], "':'"),
                (["--restart", 1, "--", "gradwire", "train", *kept], "unrecognized arguments"),
                (["--restarts", -1, "--", "gradwire", "train", *kept], "'-1': must be 0 to"),
                (["--", "/nonexistent/mpiexec", "gradwire", "train", *kept], "cannot start")):
            with self.subTest(words=words):
                done = gwrun.finished(supervise(*words))
                gwrun.refusal(done, said)
                self.assertFalse(os.path.exists(self.out))

    def test_users_mistake(self):
        """The mistake would be repeated: status 2, as from the command itself, and no restart."""
        done = gwrun.finished(supervise("--", *gwrun.command(2, "train", "--out", self.out, *KEPT, "--epochs", 0)))
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertNotIn("supervise:", done.stderr)
        self.assertFalse(os.path.exists(self.out))
