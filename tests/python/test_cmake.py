"""What the build files decide: the commit in the program, and the launcher."""

import os
import re
import shutil
import subprocess
import unittest

import gwrun
from gwrun import SOURCE, cached

BUILD = os.environ["BUILD"]
LISTS = """cmake_minimum_required(VERSION 3.22)
project(launch LANGUAGES C)
list(APPEND CMAKE_MODULE_PATH {source}/cmake)
find_package(MPI REQUIRED COMPONENTS C)
include(GwLauncher)
"""


class Commit(gwrun.Case):
    def setUp(self):
        super().setUp()
        self.tree = self.path("tree")
        self.out = self.path("version.h")
        for folder in ("src", "comm", "compress", "runs"):
            os.makedirs(os.path.join(self.tree, folder))

    def write(self, path, text):
        gwrun.write(os.path.join(self.tree, path), text)

    def git(self, *words, tree=None):
        return gwrun.said("git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false", *words,
                          cwd=tree or self.tree).strip()

    def commit(self, name="COMMIT"):
        """What a build now would write."""
        gwrun.said("cmake", f"-DSOURCE={self.tree}", "-DGIT=git", "-DVERSION=1.2.3", "-DGEMM=dnnl",
                   f"-DOUT={self.out}", "-P", os.path.join(SOURCE, "cmake", "GwCommit.cmake"))
        return re.search(rf'GW_{name}\s+"(.*)"', gwrun.read(self.out)).group(1)

    def begin(self):
        self.git("init", "-q")
        self.write("src/a.c", "int a;\n")
        self.git("add", ".")
        self.git("commit", "-qm", "a")

    def test_follows_the_tree(self):
        self.begin()
        first = self.git("rev-parse", "--short=12", "HEAD")
        self.assertEqual(self.commit(), first)
        self.write("runs/new", "results are no part of the program")
        self.assertEqual(self.commit(), first)
        self.write("src/b.c", "int b;\n")
        self.assertEqual(self.commit(), first + "-dirty")
        self.git("add", "src")
        self.assertEqual(self.commit(), first + "-dirty")
        self.git("commit", "-qm", "b")
        second = self.git("rev-parse", "--short=12", "HEAD")
        self.assertNotEqual(first, second)
        self.assertEqual(self.commit(), second)
        self.write("src/a.c", "int c;\n")
        self.assertEqual(self.commit(), second + "-dirty")

    def test_version_is_the_tag(self):
        self.begin()
        self.git("tag", "nightly")  # no version
        self.assertEqual(self.commit("VERSION"), "1.2.3")
        self.git("tag", "v2.0.0-rc1")
        self.assertEqual(self.commit("VERSION"), "2.0.0-rc1")
        self.write("src/a.c", "int c;\n")
        self.git("commit", "-qam", "c")
        self.assertEqual(self.commit("VERSION"), "2.0.0-rc1+1")

    def test_same_text_is_not_written(self):
        self.begin()
        self.commit()
        os.utime(self.out, (1000, 1000))
        self.commit()
        self.assertEqual(os.stat(self.out).st_mtime, 1000)

    def test_without_repository(self):
        self.assertEqual(self.commit(), "unknown")
        self.assertEqual(self.commit("VERSION"), "1.2.3")
        self.git("init", "-q", tree=self.dir)  # somebody else's, around the unpacked sources
        self.git("commit", "-q", "--allow-empty", "-m", "theirs", tree=self.dir)
        self.assertEqual(self.commit(), "unknown")

    def test_is_a_build_step(self):
        gwrun.said("cmake", "--build", BUILD, "--target", "gw_version")
        header = os.path.join(BUILD, "generated", "base", "version.h")
        written = re.search(r'GW_COMMIT\s+"(.*)"', gwrun.read(header)).group(1)
        if os.path.exists(os.path.join(SOURCE, ".git")):
            head = self.git("rev-parse", "--short=12", "HEAD", tree=SOURCE)
            self.assertIn(head, written)
        else:
            self.assertEqual(written, "unknown")


class Release(unittest.TestCase):
    def test_files_agree_on_the_version(self):
        found = {}
        for name, pattern in (("CMakeLists.txt", r"VERSION ([0-9.]+) LANGUAGES"),
                              ("CHANGELOG.md", r"^## \[([0-9.]+)\]"), ("CITATION.cff", r"^version: (.+)"),
                              ("python/gradwire/library.py", r"^VERSION = \"(.+)\"")):
            found[name] = re.search(pattern, gwrun.read(SOURCE, name), re.MULTILINE).group(1)
        self.assertEqual(len(set(found.values())), 1, found)


class Warnings(gwrun.Case):
    def strict(self, build, *words):
        """True if a fresh build folder would treat a warning as an error."""
        gwrun.said("cmake", "-S", SOURCE, "-B", build, "-DGW_TESTS=OFF", *words, cwd=SOURCE)
        return "-Werror" in gwrun.read(build, "compile_commands.json")

    def test_only_presets_are_strict(self):
        """A user's compiler may give warnings that ours do not."""
        self.assertFalse(self.strict(self.path("plain")))
        self.assertTrue(self.strict(self.path("preset"), "--preset", "release"))


class Quickstart(gwrun.Case):
    def test_lists_what_passed_at_the_second_try(self):
        """The whole of `./quickstart test`, of a small project."""
        for name in ("quickstart", "CMakePresets.json"):
            shutil.copy(os.path.join(SOURCE, name), self.dir)
        gwrun.write(self.path("packages.txt"), "")
        gwrun.write(self.path("flaky"), "test -e been || { touch been; exit 1; }\n")
        project = "cmake_minimum_required(VERSION 3.22)\nproject(x NONE)\nenable_testing()\n"
        for name, command, second, status in (("good", "true", [], 0), ("unit.flaky", f"sh {self.path('flaky')}", ["unit.flaky"], 0),
                                              ("bad", "false", ["unit.flaky"], 1)):
            project += f"add_test(NAME {name} COMMAND {command})\n"
            gwrun.write(self.path("CMakeLists.txt"), project)
            if os.path.exists(self.path("build", "release", "been")):
                os.remove(self.path("build", "release", "been"))
            done = gwrun.finished([self.path("quickstart"), "test"], cwd=self.dir)
            self.assertEqual(done.returncode, status, done.stdout + done.stderr)
            self.assertEqual("quickstart: tests failed\n" in done.stderr, bool(status))
            _, told, listed = done.stdout.partition("passed only at their second try")
            self.assertEqual((bool(told), [line.strip() for line in listed.splitlines()[1:]]), (bool(second), second))


class Launcher(gwrun.Case):
    def setUp(self):
        super().setUp()
        gwrun.write(self.path("CMakeLists.txt"), LISTS.format(source=SOURCE))

    def launcher(self, name, text):
        path = self.path(name)
        gwrun.write(path, f"#!/bin/sh\n{text}\n")
        os.chmod(path, 0o755)
        return path

    def found(self, build, **variables):
        """The launcher that a build folder gets."""
        build = self.path(build)
        compiler = cached("MPI_C_COMPILER") or cached("GW_MPICC")
        gwrun.said("cmake", "-S", self.dir, "-B", build, f"-DMPI_C_COMPILER={compiler}",
                   *(f"-D{name}={value}" for name, value in variables.items()))
        return os.path.join(build, "mpiexec")

    def test_one_library_per_folder(self):
        """The compiler is the first in PATH; a folder that was configured for one library refuses another."""
        gwrun.write(self.path("CMakeLists.txt"), LISTS.partition("find_package")[0].format(source=SOURCE)
                    + "include(GwDependencies)\n")
        os.mkdir(self.path("first"))
        first = self.launcher("first/mpicc", f'exec {cached("MPI_C_COMPILER") or cached("GW_MPICC")} "$@"')
        words = ("cmake", "-S", self.dir, "-B", self.path("build"), "-DGW_WHEEL=ON")
        path = dict(os.environ, PATH=self.path("first") + ":" + os.environ["PATH"])
        gwrun.said(*words, env=path)
        self.assertIn(f"GW_MPICC:FILEPATH={first}\n", gwrun.read(self.path("build/CMakeCache.txt")))
        gwrun.said(*words, env=path)  # the same again
        done = subprocess.run([*words, f"-DMPI_C_COMPILER={self.launcher('second', 'exit 1')}"], check=False,
                              capture_output=True, text=True)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(f"was configured for the MPI library of {first}", " ".join(done.stderr.split()))

    def test_found_anew_for_another(self):
        """An existing build folder uses a new mpiexec, not the one found before."""
        for name in ("one", "two"):
            launcher = self.launcher(name, f'exec "{BUILD}/mpiexec" "$@"')
            self.assertIn(launcher, gwrun.read(self.found("build", MPIEXEC_EXECUTABLE=launcher)))

    def test_of_open_mpi_loads_the_answer(self):
        """Its ranks load mpiexec.so before what the environment names."""
        fails = self.launcher("fails", "exit 1")
        pmix = self.launcher("pmix", f'while [ "$1" != -n ]; do shift; done\nexec "{BUILD}/mpiexec" "$@"')
        for build in ("build", "with blank"):
            mpiexec = self.found(build, MPIEXEC_EXECUTABLE=fails, GW_MPIEXEC_PMIX=pmix)
            done = subprocess.run([mpiexec, "-n", "1", "printenv", "LD_PRELOAD"], text=True, check=True,
                                  capture_output=True, env=dict(os.environ, LD_PRELOAD="libm.so.6"))
            answer = "" if " " in build else f"{mpiexec}.so:"
            self.assertEqual(done.stderr, "")
            self.assertTrue(done.stdout.strip().endswith(answer + "libm.so.6"), done.stdout)
            self.assertEqual(f"{mpiexec}.so" in done.stdout, " " not in build)
