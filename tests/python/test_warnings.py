"""The whole tree compiles without a warning under clang as well; gcc is the build's own matter.

Each command of the build is repeated with clang -fsyntax-only, so nothing is written.
"""

import concurrent.futures
import json
import os
import shlex
import shutil
import subprocess
import tempfile
import unittest

BUILD = os.environ["BUILD"]
CLANG = shutil.which("clang-14") or shutil.which("clang")


def check(words, folder):
    """Errors and warnings of clang on the arguments of a compiler's command line, or ''."""
    kept = []
    skip = False
    for word in words[1:]:
        if not skip and word not in ("-c", "-o"):
            kept.append(word)
        skip = word == "-o"
    done = subprocess.run([CLANG, "-fsyntax-only", "-Werror", *kept], cwd=folder, text=True,
                          capture_output=True, check=False)
    return "" if done.returncode == 0 else done.stderr or "clang failed"


class Warnings(unittest.TestCase):
    def setUp(self):
        if CLANG is None:
            self.fail("no clang on this machine: install clang-14")

    def test_tree(self):
        with open(os.path.join(BUILD, "compile_commands.json"), encoding="utf-8") as file:
            commands = json.load(file)
        self.assertGreater(len(commands), 0)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            found = list(pool.map(lambda c: check(shlex.split(c["command"]), c["directory"]),
                                  commands))
        self.assertEqual("".join(found), "")

    def test_checker_can_fail(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "bad.c")
            with open(path, "w", encoding="utf-8") as file:
                file.write("int f(int x) { int y = x; { int y = 2; x = y; } return x + y; }\n")
            self.assertIn("shadow", check(["cc", "-Wshadow", "-c", path, "-o", "x.o"], folder))


if __name__ == "__main__":
    unittest.main()
