"""The examples of CONTRIBUTING.md: built as plugins, they train together."""

import json
import os
import re
import shlex
import subprocess
import tempfile
import unittest

SOURCE, BUILD = os.environ["SOURCE"], os.environ["BUILD"]
KINDS = {"sign": "codec", "chain": "algo", "whole": "strategy"}


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

    def test_examples_train(self):
        found = examples()
        self.assertEqual(set(found), set(KINDS))
        for name, text in found.items():
            path = os.path.join(self.dir.name, name)
            with open(path + ".c", "w", encoding="utf-8") as file:
                file.write(text)
            kind = KINDS[name]
            self.run_well(compiler() + ["-shared", "-fPIC", f"-Dgw_{kind}_{name}=gw_{kind}_plugin",
                                        path + ".c", "-o", path + ".so"])
        self.run_well([os.environ["MPIEXEC"], "-n", "2", os.environ["GRADWIRE"], "train",
                       "--data", "synthetic:samples=2000,features=20,classes=4,seed=1",
                       "--layers", "16", "--steps", "200", "--batch", "32", "--update", "lazy",
                       "--comm", "./whole.so:algo=./chain.so", "--compress", "./sign.so",
                       "--out", "run", "--quiet"])
        with open(os.path.join(self.dir.name, "run", "run.json"), encoding="utf-8") as file:
            run = json.load(file)
        self.assertEqual(run["comm"], {"strategy": "whole", "algorithm": "chain", "codec": "sign",
                                       "error_feedback": True, "notes": None,
                                       "layers": None, "warning": None})
        self.assertEqual(run["results"]["steps"], 200)
        # Four classes: what learns nothing is right once in four times.
        self.assertGreater(run["results"]["test_accuracy"], 0.5)


if __name__ == "__main__":
    unittest.main()
