"""What the experiment runner says before the first run, and by which launcher it starts them."""

import os
import subprocess
import types

import gwrun
from ablation import probe
from test_experiments import TRAIN, Study, read

SRUN = """#!/bin/bash
echo "$@" >>{folder}/srun
[ "$1 $2 $3 $5" = "--exclusive --kill-on-bad-exit=1 -n -c" ] || exit 9
ranks=$4; shift 6
exec {mpiexec} -n $ranks "$@"
"""


class Estimate(Study):
    probe = gwrun.GRADWIRE

    def test_before_the_first_run(self):
        """And what runs, the time left, the size of the results and the command for the report."""
        self.write(f"""
claim: a test
repetitions: 5
base: {TRAIN} --epochs 2 --time-limit 10min --steps 20
factors: {{compress: [none, fp16]}}
""")
        said = gwrun.quiet(self.call())
        self.assertEqual(sorted(self.starts()), sorted(self.planned()))  # a probe is no run
        first, second, *others, end, report = said.splitlines()
        self.assertRegex(first, r"^10 of 10 runs to do, of 2 cells: about [\d.]+ (s|min|h), by a few steps of [12] ")
        self.assertRegex(second, r"^0/10: 0 done, 0 failed, 10 left, about [\d.]+ (s|min|h) to go; running "
                         + self.planned()[0])
        self.assertRegex(others[0], rf"^1/10: .* to go: {self.planned()[0]} done in [\d.]+ (s|min|h); running "
                         + self.planned()[1])
        self.assertRegex(end, rf"^10 runs: 10 done; in {self.out}, \d\.\d MB$")
        self.assertRegex(report, rf"^charts and tables: /.*/analysis/report {self.out}$")
        self.assertNotIn(".probe", os.listdir(self.out))
        done = self.call("--resume", "--slurm", os.devnull, "--dry-run")
        self.assertEqual((done.returncode, done.stdout), (0, "complete: nothing is left to run\n"))

    def test_steps_of_a_whole_run(self):
        cell = types.SimpleNamespace(words=["--steps", "50", "--trace"])
        run = {"options": {"batch": 32, "local-batch": None, "epochs": 3, "eval-every": 20},
               "data": {"train": 500}, "machine": {"workers": 2},
               "results": {"elapsed_s": 1.5, "train_s": 1.0, "summary": {"wall_s": 0.1}}}
        self.assertEqual(probe.planned_steps(cell, run), (48, 16))  # not 50: there are no more
        run["options"]["local-batch"] = 50
        self.assertEqual(probe.planned_steps(cell, run), (15, 5))
        # 2 s to start, 15 steps of 0.1 s, 3 evaluations of 0.5 s
        self.assertAlmostEqual(probe.whole(cell, run, 3.5), 5)
        self.assertEqual(probe.shortened(["--steps", "7", "--trace", "--time-limit", "2h", "--lr", "1"], True),
                         ["--trace", "--lr", "1", "--steps", "7", "--time-limit", "5s"])


class Launchers(Study):
    def setUp(self):
        super().setUp()
        self.write(f"""
claim: a test
timeout: 10min
base: {TRAIN} --epochs 1
factors: {{ranks: [1, 2], threads: [1, 2]}}
""")

    def test_slurm(self):
        self.script("bin/srun", SRUN)
        script = self.path("array.sh")
        slurm = ("--slurm", script)
        gwrun.refusal(self.call(*slurm, "--launcher", "testbed"), "omit --launcher testbed")
        preview = self.call(*slurm, "--jobs", "3", "--dry-run")  # without an srun
        self.assertEqual((preview.returncode, preview.stderr), (0, ""))
        self.assertFalse(os.path.exists(script) or os.path.exists(self.out))
        os.environ["PATH"] = self.path("bin") + ":" + os.environ["PATH"]
        gwrun.well(self.call(*slurm, "--jobs", "3"))
        text = read(script)
        self.assertEqual(preview.stdout, text)
        self.assertEqual(subprocess.run(["bash", "-n", script], check=False).returncode, 0)
        for line in ("--array=0-3%3", "--ntasks=4", "--cpus-per-task=1", "--time=00:12:00"):
            self.assertIn(f"#SBATCH {line}\n", text)
        self.assertEqual(self.starts(), [])

        os.environ["SLURM_ARRAY_TASK_ID"] = "2"
        gwrun.said("bash", script)
        self.assertEqual(self.starts(), [self.planned()[2]])
        record = self.records()[self.planned()[2]]
        self.assertEqual((record["state"], record["launcher"], record["planned"]),
                         ("done", "srun", 2))
        levels = record["levels"]
        self.assertIn(f"--exclusive --kill-on-bad-exit=1 -n {levels['ranks']} -c {levels['threads']} ",
                      read(self.path("srun")))

        self.assertEqual(self.call(*slurm, "--resume").returncode, 0)  # what is left
        gwrun.refusal(self.call("--slurm-site", self.spec), "--slurm-site", "give both")
        gwrun.refusal(self.call(*slurm, "--slurm-site", self.path("none")), "No such file")
        self.assertIn("\nclaim: a test\n", self.call(*slurm, "--slurm-site", self.spec, "--resume", "--dry-run").stdout)
        self.assertIn("#SBATCH --array=0-1,3%1\n", read(script))
        rest = self.call("--resume")  # here, without Slurm
        self.assertEqual(rest.returncode, 0, rest.stderr)
        self.assertEqual(sorted(self.starts()), sorted(self.planned()))

    def test_a_rank_dies(self):
        """srun names each rank that it ended: the first is the one that died."""
        said = "".join(f"echo 'srun: error: n{i}: task {i}: {why}' >&2\n" for i, why in
                       ((1, "Segmentation fault (core dumped)"), (0, "Killed")))
        self.script("bin/srun", f"#!/bin/bash\necho epoch 1\n{said}exit 139\n")
        os.environ["PATH"] = self.path("bin") + ":" + os.environ["PATH"]
        done = self.call("--launcher", "srun", "--only", "ranks=2,threads=1")
        self.assertEqual(done.returncode, 1)
        self.assertIn("signal SIGSEGV: srun: error: n1: task 1: Segmentation fault", done.stderr)

    def test_launcher_of_another_library(self):
        """Its ranks see none of each other: that is no result."""
        self.script("bin/srun", SRUN.replace("exec {mpiexec} -n $ranks", "exec"))
        os.environ["PATH"] = self.path("bin") + ":" + os.environ["PATH"]
        done = self.call("--launcher", "srun", "--only", "ranks=2,threads=1")
        self.assertEqual(done.returncode, 1)
        self.assertIn("the launcher started 2 programs of 1 rank", done.stderr)

    def test_refusals(self):
        gwrun.refusal(self.call("--launcher", "testbed"), "names neither hosts nor a rate")
        gwrun.refusal(self.call("--launcher", "ssh"), "invalid choice: 'ssh'")
        gwrun.refusal(self.call("--jobs", "0"), "'0': must be 1 to 9999")
        gwrun.refusal(self.call("--only-run", "x"), "a run's place in the plan")
        gwrun.refusal(self.call("--only-run", "1"), "there is no study here")
        os.unlink(os.path.join(self.build, "mpiexec"))
        gwrun.refusal(self.call(), "mpiexec: no such program", "--build")
        self.write(read(self.spec).replace("timeout", "timeuot"))
        gwrun.refusal(self.call(), "spec.yaml:3: ", "timeout")
