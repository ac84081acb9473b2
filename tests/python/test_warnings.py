"""The whole tree compiles without a warning under clang as well; gcc is the build's own matter.

Each command of the build is repeated with clang -fsyntax-only, so nothing is written.
"""

import concurrent.futures
import functools
import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import unittest

BUILD, SOURCE = os.environ["BUILD"], os.environ["SOURCE"]
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


@functools.cache
def words_of(path):
    """The words of a source, and of those of the tree's headers that it includes."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    found = set(re.findall(r"\w+", re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)))
    for name in re.findall(r'^#include "(.+)"', text, re.MULTILINE):
        for folder in (os.path.dirname(path), os.path.join(SOURCE, "src"), SOURCE):
            header = os.path.normpath(os.path.join(folder, name))
            if os.path.exists(header):
                found |= words_of(header)
                break
    return found


def once(commands):
    """The commands without those that show the compiler what another does: the library compiles the
    program's sources again, for another place and without names that they do not look at."""
    kept = {}
    for command in commands:
        known = words_of(command["file"])
        words = [word for word in shlex.split(command["command"])
                 if not re.fullmatch(r"-fPIC|-fno-semantic-interposition|-o|\S+\.o", word)
                 and word != f"-I{SOURCE}/include"
                 and (not word.startswith("-D") or word[2:].split("=")[0] in known)]
        kept.setdefault((command["file"], *words), command)
    return list(kept.values())


class Warnings(unittest.TestCase):
    def setUp(self):
        if CLANG is None:
            self.fail("no clang on this machine: install clang-14")

    def test_tree(self):
        with open(os.path.join(BUILD, "compile_commands.json"), encoding="utf-8") as file:
            commands = once(json.load(file))
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
