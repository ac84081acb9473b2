"""The whole tree compiles without a warning under clang as well; gcc is the build's own matter.

Each command of the build is repeated in this process by libclang, clang's own library: the program
takes as long to start as it takes to read a file.
"""

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


def check(words, folder):
    """Errors and warnings of clang on the command line of a compiler, or ''."""
    clang, headers = library()
    words = [CLANG, "-fsyntax-only", "-working-directory", folder, "-resource-dir", headers,
             *words[1:]]
    texts = (ctypes.c_char_p * len(words))(*map(os.fsencode, words))
    index, unit = clang.clang_createIndex(0, 0), ctypes.c_void_p()
    failed = clang.clang_parseTranslationUnit2FullArgv(index, None, texts, len(words), None, 0, 0,
                                                       ctypes.byref(unit))
    found = f"libclang cannot take {shlex.join(words)}\n" if failed else ""
    for i in range(0 if failed else clang.clang_getNumDiagnostics(unit)):
        diagnostic = clang.clang_getDiagnostic(unit, i)
        text = clang.clang_formatDiagnostic(diagnostic, clang.clang_defaultDiagnosticDisplayOptions())
        found += clang.clang_getCString(text).decode() + "\n"
        clang.clang_disposeString(text)
        clang.clang_disposeDiagnostic(diagnostic)
    if not failed:
        clang.clang_disposeTranslationUnit(unit)
    clang.clang_disposeIndex(index)
    return found


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
