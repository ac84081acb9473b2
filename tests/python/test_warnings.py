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


def texts(path, folders, seen):
    """Of a source and of all headers of the tree that it includes."""
    if path in seen or not os.path.exists(path):
        return ""
    seen.add(path)
    text = gwrun.read(path)
    return text + "".join(texts(os.path.join(folder, name), folders, seen)
                          for name in re.findall(r'^#include "(.+)"', text, re.MULTILINE) for folder in folders)


def distinct(commands):
    """Without the second of two for one file that differ in no macro which it or a header names: those of program and
    library."""
    found = {}
    for command in commands:
        words = shlex.split(command["command"])
        path = os.path.join(command["directory"], command["file"])
        folders = [os.path.dirname(path), *(os.path.join(command["directory"], word[2:]) for word in words
                                            if word.startswith("-I"))]
        text = texts(path, folders, set())
        macros = (word[2:].split("=")[0] for word in words if word.startswith("-D"))
        found[command["file"], frozenset(name for name in macros if re.search(rf"\b{name}\b", text))] = command
    return list(found.values())


class Warnings(gwrun.Case):
    def setUp(self):
        super().setUp()
        if CLANG is None:
            self.fail("no clang on this machine: install clang-14")

    def test_tree(self):
        commands = gwrun.read_json(os.environ["BUILD"], "compile_commands.json")
        self.assertEqual({command["file"] for command in distinct(commands)}, {command["file"] for command in commands})
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            self.assertEqual("".join(pool.map(check, distinct(commands))), "")

    def test_distinct(self):
        for text, count in (("int x;", 1), ('#include "x.h"\n', 2), ("#ifdef GW_X\nint x;\n#endif\n", 2)):
            gwrun.write(self.path("x.h"), "#ifdef GW_X\nint x;\n#endif\n")
            gwrun.write(self.path("x.c"), text)
            commands = [{"directory": self.dir, "file": "x.c", "command": f"cc {macro} -c x.c"} for macro in ("", "-DGW_X")]
            self.assertEqual(len(distinct(commands)), count)

    def test_checker_can_fail(self):
        path = self.path("bad.c")
        gwrun.write(path, "#include <math.h>\n"
                    "int f(int x) { int y = x; { int y = 2; x = y; } return x + y; }\n"
                    "double g(void) { return M_PI + abs(1); }\n")
        said = check({"command": f"cc -Wshadow -Wall -c {path} -o x.o", "directory": self.dir})
        for part in ("-Wshadow", "-Wimplicit"):  # math.h does not declare abs()
            self.assertEqual(said.count(part), 1, said)
