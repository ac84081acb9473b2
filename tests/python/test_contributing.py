"""The examples of CONTRIBUTING.md: built as plugins, they train together."""

import json
import os
import re
import shlex
import subprocess
import tempfile
import unittest

SOURCE, BUILD = os.environ["SOURCE"], os.environ["BUILD"]
KINDS = {"sign": "codec", "chain": "algo", "whole": "strategy", "early": "timetable"}


def examples():
    """{name: source} of the complete files shown; each begins with a comment '/* NAME: ...'."""
    with open(os.path.join(SOURCE, "CONTRIBUTING.md"), encoding="utf-8") as file:
        blocks = re.findall(r"^```c\n(.*?)^```", file.read(), re.MULTILINE | re.DOTALL)
    return {re.match(r"/\* (\w+): ", block).group(1): block for block in blocks}


def compiler():
    """Compiler and options of the build, from the command that compiled the program's main."""
    with open(os.path.join(BUILD, "compile_commands.json"), encoding="utf-8") as file:
        command = next(c["command"] for c in json.load(file) if c["file"].endswith("cli/main.c"))
    words = shlex.split(command)
    return words[:words.index("-o")]


class Examples(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.TemporaryDirectory()
        self.addCleanup(self.dir.cleanup)

    def run_well(self, command):
        done = subprocess.run(command, cwd=self.dir.name, text=True, capture_output=True,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def build(self):
        found = examples()
        self.assertEqual(set(found), set(KINDS))
        for name, text in found.items():
            path, kind = os.path.join(self.dir.name, name), KINDS[name]
            with open(path + ".c", "w", encoding="utf-8") as file:
                file.write(text.replace(f"gw_{kind}_{name}", f"gw_{kind}_plugin"))
            self.run_well(compiler() + ["-shared", "-fPIC", path + ".c", "-o", path + ".so"])

    def train(self, *words):
        """run.json of a short run."""
        self.run_well([os.environ["MPIEXEC"], "-n", "2", os.environ["PROGRAM"], "train",
                       "--data", "synthetic:samples=2000,features=20,classes=4,seed=1",
                       "--layers", "16", "--batch", "32", "--out", "run", "--overwrite", "--quiet",
                       "--overhead", "0", *words])
        with open(os.path.join(self.dir.name, "run", "run.json"), encoding="utf-8") as file:
            return json.load(file)

    def test_examples_train(self):
        self.build()
        run = self.train("--steps", "200", "--update", "lazy", "--comm",
                         "./whole.so:algo=./chain.so", "--compress", "./sign.so")
        self.assertEqual(run["comm"], {"strategy": "whole", "algorithm": "chain", "codec": "sign",
                                       "error_feedback": True, "unmet": [],
                                       "encoded": run["comm"]["encoded"], "notes": None, "layers": None, "warning": None})
        self.assertEqual(run["results"]["steps"], 200)
        # Four classes: what learns nothing is right once in four times.
        self.assertGreater(run["results"]["test_accuracy"], 0.5)

    def test_timetable_keeps_its_contract(self):
        self.build()
        path = os.path.join(self.dir.name, "early.so")
        self.assertIn(f"timetable {os.path.realpath(path)}: keeps its contract",
                      self.run_well([os.path.join(SOURCE, "tests/plugin"), path, BUILD]))

    def test_contract_is_broken(self):
        """A codec whose signs are lost, an algorithm whose last hop is left out, and a timetable that
        waits less than it says."""
        self.build()
        for name, good, bad in (("sign", "? -scale : scale", "? scale : scale"),
                                ("chain", "return gw_schedule_unpack(s, slot, span, false);",
                                 "return GW_OK;"),
                                ("early", "(stages - 1) * (cost->", "stages * (cost->")):
            path = os.path.join(self.dir.name, name)
            with open(path + ".c", encoding="utf-8") as file:
                text = file.read()
            self.assertIn(good, text)
            with open(path + ".c", "w", encoding="utf-8") as file:
                file.write(text.replace(good, bad))
            self.run_well(compiler() + ["-shared", "-fPIC", path + ".c", "-o", path + ".so"])
            done = subprocess.run([os.path.join(SOURCE, "tests/plugin"), path + ".so", BUILD, "2"],
                                  text=True, capture_output=True, check=False)
            self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
            self.assertIn("breaks the contract", done.stderr)

    def test_path_of_a_plugin_is_cut_between_characters(self):
        """Where run.json keeps only so much of a spec."""
        self.build()
        for first in "a", "aa":
            folder = os.path.join(self.dir.name, first + 90 * "\u00fc")
            os.makedirs(folder)
            os.rename(os.path.join(self.dir.name, "sign.so"), os.path.join(folder, "sign.so"))
            spec = os.path.join(folder, "sign.so")
            run = self.train("--steps", "3", "--compress-stats", "1", "--compress",
                             f"{spec};layer1={spec};layer0={spec}")
            kept = [run["comm"]["codec"], *(layer["codec"] for layer in run["comm"]["layers"])]
            for text in kept:
                self.assertTrue(spec.startswith(text) or text.startswith(spec), text)
            os.rename(spec, os.path.join(self.dir.name, "sign.so"))


if __name__ == "__main__":
    unittest.main()
