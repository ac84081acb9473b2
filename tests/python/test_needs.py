"""Under an interpreter that lacks a package, every script says so in one line and ends with status 2; a
fault of the program has another status."""

import io
import os
import sys
import unittest
import venv
from unittest import mock

import yaml

import gwrun

import tool

SOURCE = os.environ["SOURCE"]

NEEDS = {  # script: (arguments, what its interpreter must have)
    "analysis/report": (["."], ["matplotlib", "numpy", "pandas", "scipy"]),
    "analysis/export": (["."], ["numpy", "pandas"]),
    "analysis/claims": (["."], ["numpy", "pandas", "scipy", "yaml"]),
    "analysis/compare": ([".", "."], ["numpy", "pandas", "scipy"]),
    "analysis/tensorboard": (["a.jsonl", "b"], ["tensorboard"]),
    "experiments/run": (["quick.yaml"], ["yaml", "matplotlib", "numpy", "pandas", "scipy"]),
    "experiments/peers/compare_ddp.py": (["--out", "."], ["numpy", "torch"]),
    "experiments/peers/compare_replay.py": (["--out", "."], ["numpy", "torch"]),
    "experiments/peers/compare_accuracy.py": ([], ["numpy", "scipy", "torch"]),
    "experiments/peers/compare_gpt.py": (["--text", ".", "--out", "."], ["numpy", "torch"]),
    "experiments/peers/compare_topk.py": ([], ["torch"]),
    "experiments/peers/compare_torch.py": ([], ["numpy", "torch"]),
    "experiments/peers/ddp_rank.py": ([], ["numpy", "torch"]),
    "experiments/peers/gloo_allreduce.py": ([], ["torch"]),
    "experiments/peers/gpt_torch.py": ([], ["numpy", "torch"]),
    "experiments/peers/torch_train.py": ([], ["numpy", "torch"]),
}
FREE = {"analysis/show", "analysis/table", "analysis/trace-check", "experiments/supervise",
        "experiments/testbed", "experiments/peers/compare_predictions.py", "experiments/peers/compare_simulated.py",
        "experiments/peers/simulated_cost.py"}


def is_program(path):
    return path.endswith(".py") and "__main__" in gwrun.read(path)


class Faults(unittest.TestCase):
    def test_a_fault_of_the_program_is_no_bad_input(self):
        for fault, said in ((MemoryError(), "MemoryError: out of memory"),
                            (RecursionError("too deep"), "RecursionError: too deep")):
            with mock.patch.object(sys, "stderr", io.StringIO()) as stderr:
                with self.assertRaises(SystemExit) as ended:
                    tool.call("report", mock.Mock(side_effect=fault))
            self.assertEqual(ended.exception.code, 3)
            self.assertEqual(stderr.getvalue(), f"report: a fault of the program, {said}\n")


class Needs(gwrun.Shared):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        venv.create(cls.path("bare"), symlinks=True)
        cls.bin = cls.path("bare", "bin")
        cls.env = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
        cls.env["PATH"] = f"{cls.bin}:{cls.env['PATH']}"

    def bare(self, script, *words):
        """A script in an active environment without packages: as a program, if it is one."""
        path = os.path.join(SOURCE, script)
        by = [] if os.access(path, os.X_OK) else [os.path.join(self.bin, "python3"), "-B"]
        return gwrun.finished([*by, path, *words], cwd=self.dir, env=self.env)

    def test_lacking_packages_are_named_in_one_line(self):
        for script, (words, modules) in NEEDS.items():
            with self.subTest(script=script):
                done = self.bare(script, *words)
                line = gwrun.refusal(done)
                python = os.path.join(self.bin, "python3")
                self.assertTrue(line.startswith(f"{os.path.basename(script)}: {python} "), line)
                self.assertIn(f"has no module {', '.join(modules)}: {python} -m pip install ", line)

    def test_a_study_says_before_its_runs_what_its_report_needs(self):
        os.symlink(os.path.dirname(yaml.__file__), os.path.join(self.dir, "yaml"))
        gwrun.write(self.path("small.yaml"), "claim: x\nbase: --data synthetic:samples=600\nfactors: {lr: [1]}\n")
        done = gwrun.finished([os.path.join(SOURCE, "experiments", "run"), "small.yaml", "--build", os.environ["BUILD"],
                               "--dry-run"], cwd=self.dir, env={**self.env, "PYTHONPATH": self.dir})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, "^experiments/run: the study can run, but not its report: .* has no module matplotlib, "
                         "numpy, pandas, scipy: .* -m pip install matplotlib numpy pandas scipy\n$")

    def test_another_interpreter_gives_way_to_the_distribution_s(self):
        """Not an environment's, and only to one that has what is needed."""
        modules, fake = ("json", "nonesuch"), self.path("python3")
        with mock.patch.multiple(tool, SYSTEM=fake, in_environment=lambda: False):
            self.assertIsNone(tool.interpreter(*modules))
            for status, found in ((1, None), (0, fake)):
                gwrun.write(fake, f"#!/bin/sh\nexit {status}\n")
                os.chmod(fake, 0o755)
                self.assertEqual(tool.interpreter(*modules), found)
            self.assertEqual(tool.interpreter("json"), sys.executable)
            with mock.patch.object(tool.shutil, "which", lambda name: name):
                self.assertIn("no module nonesuch: apt-get install python3-nonesuch", tool.advice(*modules))
            with mock.patch.object(tool, "in_environment", lambda: True):
                self.assertIsNone(tool.interpreter(*modules))

    def test_the_others_need_nothing(self):
        for script in FREE:
            with self.subTest(script=script):
                done = self.bare(script, "--nonesuch")
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertNotIn("Traceback", done.stderr)

    def test_no_script_is_forgotten(self):
        """Executables, and all peers that are programs."""
        found = {f"{folder}/{name}" for folder in ("analysis", "experiments", "experiments/peers")
                 for name in os.listdir(os.path.join(SOURCE, folder))
                 if os.path.isfile(os.path.join(SOURCE, folder, name)) and
                 (os.access(os.path.join(SOURCE, folder, name), os.X_OK) or
                  folder.endswith("peers") and is_program(os.path.join(SOURCE, folder, name)))}
        self.assertEqual(found, {*NEEDS, *FREE})
