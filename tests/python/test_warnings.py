"""The whole tree compiles without a warning under clang as well; gcc is the build's own matter."""

import concurrent.futures
import os
import re
import shlex
import shutil

import gwrun

CLANG = shutil.which("clang-14") or shutil.which("clang")


def check(command):
    """Errors and warnings of clang on a command of the build, or ''."""
    words = [word for word in shlex.split(command["command"])[1:] if not re.fullmatch(r"-o|\S+\.o", word)]
    done = gwrun.finished([CLANG, "-fsyntax-only", *words], cwd=command["directory"])
    return done.stderr or (f"{command['file']}: status {done.returncode}\n" if done.returncode else "")


class Warnings(gwrun.Case):
    def setUp(self):
        super().setUp()
        if CLANG is None:
            self.fail("no clang on this machine: install clang-14")

    def test_tree(self):
        commands = gwrun.read_json(os.environ["BUILD"], "compile_commands.json")
        self.assertGreater(len(commands), 0)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            self.assertEqual("".join(pool.map(check, commands)), "")

    def test_checker_can_fail(self):
        path = self.path("bad.c")
        gwrun.write(path, "#include <math.h>\n"
                    "int f(int x) { int y = x; { int y = 2; x = y; } return x + y; }\n"
                    "double g(void) { return M_PI + abs(1); }\n")
        said = check({"command": f"cc -Wshadow -Wall -c {path} -o x.o", "directory": self.dir})
        for part in ("-Wshadow", "-Wimplicit"):  # math.h does not declare abs()
            self.assertEqual(said.count(part), 1, said)
