"""The tree's layout: who may include whom, and that registries and files agree."""

import os
import re
import tempfile
import unittest

ROOT = os.environ["SOURCE"]

# Room -> rooms whose headers its files may include.
MAY_INCLUDE = {
    "base": {"base"},
    "prof": {"base", "prof"},
    "nn": {"base", "nn"},
    "data": {"base", "data"},
    "compress": {"base", "compress"},
    "comm": {"base", "compress", "comm"},
    "train": {"base", "prof", "nn", "data", "compress", "comm", "train"},
    "cli": {"base", "prof", "nn", "data", "compress", "comm", "train", "cli"},
}

# Rooms that must not come to see MPI, not even through a header of another room.
WITHOUT_MPI = {"nn", "compress"}

# .def file, folder of its sources, and the symbol that a member defines.
REGISTRIES = [
    ("compress/codecs.def", "compress", "gw_codec_ops gw_codec_"),
    ("comm/algos.def", "comm/algo", "gw_algo_ops gw_algo_"),
    ("comm/strategies.def", "comm/strategy", "gw_strategy_ops gw_strategy_"),
    ("src/cli/commands.def", "src/cli", "gw_command gw_command_"),
]

TOP_LEVEL = ["CMakeLists.txt", "CMakePresets.json", "LICENSE", "README.md", "CONTRIBUTING.md",
             "packages.txt", "quickstart", "src", "comm", "compress", "experiments", "analysis",
             "tests"]

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def sources(root):
    """(name as files include it, room, path) of every C file of the program."""
    for top in ("src", "compress", "comm"):
        for folder, _, names in os.walk(os.path.join(root, top)):
            for name in names:
                if name.endswith((".c", ".h", ".def")):
                    path = os.path.join(folder, name)
                    base = os.path.join(root, "src") if top == "src" else root
                    known_as = os.path.relpath(path, base)
                    yield known_as, known_as.split(os.sep)[0], path


def bad_includes(root):
    """One line for each #include that goes against the rule."""
    includes = {known_as: (room, INCLUDE.findall(read(path)))
                for known_as, room, path in sources(root)}

    def sees_mpi(name, seen):
        """The chain of headers from `name` to mpi.h, or None."""
        for _, target in includes.get(name, ("", []))[1]:
            if target == "mpi.h":
                return [name, target]
            if target not in seen:
                chain = sees_mpi(target, seen | {target})
                if chain:
                    return [name] + chain
        return None

    for name, (room, targets) in sorted(includes.items()):
        if room not in MAY_INCLUDE:
            yield f"{name}: no room '{room}' in the plan"
            continue
        for quote, target in targets:
            other = target.split("/")[0]
            if quote == '"' and (other not in MAY_INCLUDE or "/" not in target):
                yield f'{name}: "{target}" does not begin with a room, as in "base/err.h"'
            elif quote == '"' and other not in MAY_INCLUDE[room]:
                yield f"{name}: {room} must not include {other} ({target})"
        chain = sees_mpi(name, {name}) if room in WITHOUT_MPI else None
        if chain:
            yield f"{name}: {room} must not see MPI: {' -> '.join(chain)}"


def bad_registries(root):
    """One line for each disagreement between a .def file and the files beside it."""
    for def_file, folder, symbol in REGISTRIES:
        listed = re.findall(r"^X\((\w+)\)", read(os.path.join(root, def_file)), re.MULTILINE)
        if not listed:
            yield f"{def_file}: lists nothing"
        for name in sorted(set(listed)):
            if listed.count(name) > 1:
                yield f"{def_file}: lists {name} more than once"
        defined = {}
        for file in os.listdir(os.path.join(root, folder)):
            if file.endswith(".c"):
                text = read(os.path.join(root, folder, file))
                pattern = rf"^const {symbol}(\w+)\s*=\s*\{{"
                for name in re.findall(pattern, text, re.MULTILINE):
                    defined[name] = file
        for name in listed:
            if defined.get(name) != f"{name}.c":
                yield f"{def_file}: X({name}), but {folder}/{name}.c does not define {symbol}{name}"
        for name, file in sorted(defined.items()):
            if name not in listed:
                yield f"{folder}/{file} defines {name}, but {def_file} has no X({name})"


class Layout(unittest.TestCase):
    def test_top_level(self):
        self.assertEqual([n for n in TOP_LEVEL if not os.path.exists(os.path.join(ROOT, n))], [])

    def test_includes(self):
        self.assertGreater(len(list(sources(ROOT))), 0)
        self.assertEqual(list(bad_includes(ROOT)), [])

    def test_registries(self):
        self.assertEqual(list(bad_registries(ROOT)), [])


class CheckerCanFail(unittest.TestCase):
    """The same checks on a small tree with faults."""

    def setUp(self):
        self.dir = tempfile.TemporaryDirectory()
        self.addCleanup(self.dir.cleanup)

    def write(self, name, text):
        path = os.path.join(self.dir.name, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def test_includes(self):
        self.write("src/base/agree.h", "#include <mpi.h>\n")
        self.write("src/base/err.h", "")
        self.write("src/nn/direct.c", "#include <mpi.h>\n")
        self.write("src/nn/indirect.c", '#include "base/agree.h"\n')
        self.write("src/nn/fine.c", '#include "base/err.h"\n#include <string.h>\n')
        self.write("comm/timed.c", '  #  include "prof/clock.h"\n')
        self.write("compress/bare.c", '#include "codec.h"\n')
        self.write("src/new/x.c", "")
        found = [line.split(":")[0] for line in bad_includes(self.dir.name)]
        self.assertEqual(found, ["comm/timed.c", "compress/bare.c", "new/x.c", "nn/direct.c",
                                 "nn/indirect.c"])

    def test_registries(self):
        for def_file, folder, symbol in REGISTRIES:
            self.write(def_file, "X(good)\nX(good)\nX(missing)\n")
            self.write(f"{folder}/good.c", f"const {symbol}good = {{\n")
            self.write(f"{folder}/unlisted.c", f"const {symbol}unlisted = {{\n")
            self.write(f"{folder}/helper.c", "int help(void);\n")
        found = "\n".join(bad_registries(self.dir.name))
        for word in ("more than once", "X(missing), but", "no X(unlisted)"):
            self.assertEqual(found.count(word), len(REGISTRIES), found)
        self.assertNotIn("helper", found)


if __name__ == "__main__":
    unittest.main()
