"""Under an interpreter that lacks a package, every script says so in one line and ends with status 2; a
fault of the program has another status."""

import io
import os
import sys
import tempfile
import unittest
from unittest import mock

import gwrun

import tool

SOURCE = os.environ["SOURCE"]

NEEDS = {  # script: (arguments, what its interpreter must have)
    "analysis/report": (["."], ["matplotlib", "numpy", "pandas", "scipy"]),
    "analysis/export": (["."], ["numpy", "pandas"]),
    "analysis/claims": (["."], ["numpy", "pandas", "scipy", "yaml"]),
    "analysis/compare": ([".", "."], ["numpy", "pandas", "scipy"]),
    "experiments/run": (["quick.yaml"], ["yaml"]),
    "experiments/bigmachine": ([], ["yaml"]),
    "experiments/simulate-train": ([], ["yaml"]),
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
        "experiments/testbed", "experiments/peers/compare_simulated.py", "experiments/peers/simulated_cost.py"}


def bare(script, *words):
    """Run by this interpreter without any folder of packages (-S), nor what PYTHONPATH names (-E)."""
    with tempfile.TemporaryDirectory() as folder:
        return gwrun.finished([sys.executable, "-S", "-E", "-B", os.path.join(SOURCE, script), *words], cwd=folder)


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


class Needs(unittest.TestCase):
    def test_lacking_packages_are_named_in_one_line(self):
        for script, (words, modules) in NEEDS.items():
            with self.subTest(script=script):
                done = bare(script, *words)
                line = gwrun.refusal(done)
                self.assertTrue(line.startswith(os.path.basename(script) + ": "), line)
                for word in [sys.executable, *modules]:
                    self.assertIn(word, line)

    def test_the_others_need_nothing(self):
        for script in FREE:
            with self.subTest(script=script):
                done = bare(script, "--nonesuch")
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
