"""The whole tree compiles without a warning under clang as well; gcc is the build's own matter.

Each command of the build is repeated in this process by libclang, clang's own library: the program
takes as long to start as it takes to read a file. What takes long of that are headers of the system,
which libclang therefore reads once for all sources that include the same ones.
"""

import collections
import concurrent.futures
import ctypes
import functools
import glob
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
# What takes longer to read than many a source.
LONG = ("setjmp.h", "stdio.h", "stdlib.h", "math.h", "immintrin.h", "mpi.h")
FEW = 2  # sources for which nothing is read once
FOR_SERIALIZATION = 16  # libclang's name for a unit that can be saved


class Text(ctypes.Structure):
    """libclang's CXString."""
    _fields_ = (("data", ctypes.c_void_p), ("flags", ctypes.c_uint))


@functools.cache
def library():
    """libclang of CLANG, and where its own headers lie."""
    headers = subprocess.run([CLANG, "-print-resource-dir"], text=True, capture_output=True,
                             check=True).stdout.strip()
    beside = glob.glob(os.path.join(headers, "..", "..", "libclang[-.]*so*"))
    found = ctypes.CDLL(next(path for path in sorted(beside) if "-cpp" not in path))
    handle, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint
    for name, result, *arguments in (
            ("createIndex", handle, number, number),
            ("disposeIndex", None, handle),
            ("parseTranslationUnit2FullArgv", number, handle, text, ctypes.POINTER(text), number,
             handle, number, number, ctypes.POINTER(handle)),
            ("saveTranslationUnit", ctypes.c_int, handle, text, number),
            ("disposeTranslationUnit", None, handle),
            ("getNumDiagnostics", number, handle),
            ("getDiagnostic", handle, handle, number),
            ("disposeDiagnostic", None, handle),
            ("defaultDiagnosticDisplayOptions", number),
            ("formatDiagnostic", Text, handle, number),
            ("getCString", text, Text),
            ("disposeString", None, Text)):
        function = getattr(found, "clang_" + name)
        function.restype, function.argtypes = result, arguments
    return found, headers


def check(words, folder, saved=None):
    """Errors and warnings of clang on the command line of a compiler, or ''. `saved`: a path for what
    it has read, if that is in order."""
    clang, headers = library()
    words = [CLANG, "-fsyntax-only", "-working-directory", folder, "-resource-dir", headers,
             *words[1:]]
    texts = (ctypes.c_char_p * len(words))(*map(os.fsencode, words))
    index, unit = clang.clang_createIndex(0, 0), ctypes.c_void_p()
    failed = clang.clang_parseTranslationUnit2FullArgv(
        index, None, texts, len(words), None, 0, FOR_SERIALIZATION if saved else 0, ctypes.byref(unit))
    found = f"libclang cannot take {shlex.join(words)}\n" if failed else ""
    for i in range(0 if failed else clang.clang_getNumDiagnostics(unit)):
        diagnostic = clang.clang_getDiagnostic(unit, i)
        text = clang.clang_formatDiagnostic(diagnostic, clang.clang_defaultDiagnosticDisplayOptions())
        found += clang.clang_getCString(text).decode() + "\n"
        clang.clang_disposeString(text)
        clang.clang_disposeDiagnostic(diagnostic)
    if saved and not found and clang.clang_saveTranslationUnit(unit, os.fsencode(saved), 0) != 0:
        found = f"libclang cannot save {saved}\n"
    if not failed:
        clang.clang_disposeTranslationUnit(unit)
    clang.clang_disposeIndex(index)
    return found


@functools.cache
def text_of(path):
    """A source without its comments, and the tree's headers that it includes."""
    with open(path, encoding="utf-8") as file:
        text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.DOTALL)
    folders = (os.path.dirname(path), os.path.join(SOURCE, "src"), SOURCE)
    paths = ([os.path.normpath(os.path.join(folder, name)) for folder in folders]
             for name in re.findall(r'^#include "(.+)"', text, re.MULTILINE))
    return text, [next(filter(os.path.exists, there)) for there in paths
                  if any(map(os.path.exists, there))]


@functools.cache
def words_of(path):
    """The words of a source, and of those of the tree's headers that it includes."""
    text, headers = text_of(path)
    return set(re.findall(r"\w+", text)).union(*map(words_of, headers))


@functools.cache
def system_of(path):
    """The system's headers that a source includes, itself or by the tree's headers."""
    text, headers = text_of(path)
    return set(re.findall(r"^ *# *include <(.+)>", text, re.MULTILINE)).union(*map(system_of, headers))


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


def prepared(words, names, folder, top):
    """The words that have clang begin with these headers as it has read them once, in `top`."""
    path = tempfile.mkstemp(".h", dir=top)[1]
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(f"#include <{name}>\n" for name in names)
    # A header that is not for this machine, as a source may know, is read by that source alone.
    failed = check([*words, "-x", "c-header", path], folder, path + ".pch")
    return [] if failed else ["-include-pch", path + ".pch"]


def found_by_all(commands, top):
    """What clang says to the commands, each of which has a folder, its words and its source."""
    alike = collections.defaultdict(list)
    for command in commands:
        words = shlex.split(command["command"])
        source = words.index("-c") + 1
        words = [word for i, word in enumerate(words) if i not in (source - 1, source)
                 and not re.fullmatch(r"-o|\S+\.o", word)]
        names = tuple(name for name in LONG if name in system_of(command["file"]))
        places = tuple(word for word in words if not word.startswith("-I"))
        alike[places, names].append((words, command["directory"], command["file"]))

    def found_by(names, sources):
        first, folder, _ = sources[0]
        begin = prepared(first, names, folder, top) if names and len(sources) > FEW else []
        return "".join(check([*words, *begin, "-c", path], folder) for words, folder, path in sources)

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return "".join(pool.map(found_by, (names for _, names in alike), alike.values()))


class Warnings(unittest.TestCase):
    def setUp(self):
        if CLANG is None:
            self.fail("no clang on this machine: install clang-14")

    def test_tree(self):
        with open(os.path.join(BUILD, "compile_commands.json"), encoding="utf-8") as file:
            commands = once(json.load(file))
        self.assertGreater(len(commands), 0)
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(found_by_all(commands, folder), "")

    def test_checker_can_fail(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "bad.c")
            with open(path, "w", encoding="utf-8") as file:
                file.write("#include <math.h>\n"
                           "int f(int x) { int y = x; { int y = 2; x = y; } return x + y; }\n"
                           "double g(void) { return M_PI + abs(1); }\n")
            words = ["cc", "-Wshadow", "-Wall", "-c", path, "-o", "x.o"]
            alone = check(words, folder)
            for part in ("-Wshadow", "-Wimplicit"):  # math.h does not declare abs()
                self.assertEqual(alone.count(part), 1, alone)
            command = {"file": path, "directory": folder, "command": shlex.join(words)}
            self.assertEqual(found_by_all([command] * (FEW + 1), folder), alone * (FEW + 1))
            self.assertTrue(glob.glob(os.path.join(folder, "*.pch")))


if __name__ == "__main__":
    unittest.main()
