"""Under an interpreter that lacks a package, every script says so in one line and ends with status 2."""

import os
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ["SOURCE"]
NEEDS = {  # script: (arguments, what its interpreter must have)
    "analysis/report": (["."], ["matplotlib", "numpy", "pandas", "scipy"]),
    "analysis/compare": ([".", "."], ["numpy", "pandas", "scipy"]),
    "experiments/run": (["quick.yaml"], ["yaml"]),
    "experiments/peers/compare_topk.py": ([], ["torch"]),
    "experiments/peers/compare_torch.py": ([], ["numpy", "torch"]),
    "experiments/peers/gloo_allreduce.py": ([], ["torch"]),
    "experiments/peers/torch_train.py": ([], ["numpy", "torch"]),
}
FREE = {"analysis/show", "analysis/table", "analysis/trace-check", "experiments/supervise", "experiments/testbed",
        "experiments/peers/compare_steps.py"}


def bare(script, *words):
    """Run by this interpreter without any folder of packages (-S), nor what PYTHONPATH names (-E)."""
    with tempfile.TemporaryDirectory() as folder:
        return subprocess.run([sys.executable, "-S", "-E", "-B", os.path.join(SOURCE, script), *words],
                              cwd=folder, text=True, capture_output=True, check=False, timeout=300)


class Needs(unittest.TestCase):
    def test_lacking_packages_are_named_in_one_line(self):
        for script, (words, modules) in NEEDS.items():
            with self.subTest(script=script):
                done = bare(script, *words)
                self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
                line, = done.stderr.splitlines()
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
        """Executables, and all peers."""
        found = {f"{folder}/{name}" for folder in ("analysis", "experiments", "experiments/peers")
                 for name in os.listdir(os.path.join(SOURCE, folder))
                 if os.path.isfile(os.path.join(SOURCE, folder, name)) and
                 (os.access(os.path.join(SOURCE, folder, name), os.X_OK) or
                  folder.endswith("peers") and name.endswith(".py"))}
        self.assertEqual(found, {*NEEDS, *FREE})


if __name__ == "__main__":
    unittest.main()
