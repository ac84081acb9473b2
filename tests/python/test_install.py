"""What `cmake --install` leaves works out of the installed folder alone."""

import os
import re
import shlex
import shutil
import sys
import unittest
from pathlib import Path

import gwrun
from gwrun import GRADWIRE, SOURCE, said
from test_contributing import KINDS, blocks, examples
from test_library import program

SPEC = """
claim: a test
ranks: 2
base: --data synthetic:samples=600 --layers 8 --batch 32 --steps 20 --overhead 0
factors: {strategy: {allreduce: {comm: allreduce}, ps: {comm: ps}}}
repetitions: 2
"""
PROJECT = """
cmake_minimum_required(VERSION 3.22)
project(mine LANGUAGES C)
find_package(gradwire REQUIRED)
find_package(MPI REQUIRED COMPONENTS C)
add_library(whole MODULE whole.c)
target_link_libraries(whole PRIVATE gradwire::plugin MPI::MPI_C)
set_target_properties(whole PROPERTIES PREFIX "")
"""
CLIENT = """
cmake_minimum_required(VERSION 3.22)
project(client LANGUAGES C)
find_package(gradwire REQUIRED)
add_executable(client client.c)
target_link_libraries(client PRIVATE gradwire::gradwire)
"""
OPTION = re.compile(r"^  (--[a-z][a-z0-9-]*)(?: (\S+))?\s", re.MULTILINE)
NAME = re.compile(r"^  ([a-z][a-z0-9-]*) ", re.MULTILINE)
UNSANITIZED = "a client of a user is not linked with a sanitizer's runtime"


def commands(page):
    """The lines of each block without a language of a page of docs."""
    return [block.splitlines() for block in blocks(page, "")]


def helps():
    """{(command, ..): its help}, of every command and benchmark."""
    found = {(name,): said(GRADWIRE, name, "--help")
             for name in NAME.findall(said(GRADWIRE, "--help"))}
    for name in NAME.findall(found["bench",]):
        found["bench", name] = said(GRADWIRE, "bench", name, "--help")
    return found


class Installed(gwrun.Shared):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        prefix = cls.path("first")
        said("cmake", "--install", os.environ["BUILD"], "--prefix", prefix)
        cls.prefix = cls.path("moved")  # nothing may name the place
        os.rename(prefix, cls.prefix)
        cls.helps = helps()

    def installed(self, *names):
        return os.path.join(self.prefix, *names)

    def call(self, tool, *words):
        return said(self.installed("bin", tool), *words, cwd=self.dir)

    def test_every_tool_is_there(self):
        """Whatever can be executed in analysis/ and experiments/."""
        tools = {name for folder in ("analysis", "experiments")
                 for name in os.listdir(os.path.join(SOURCE, folder))
                 if "." not in name and os.path.isfile(os.path.join(SOURCE, folder, name))}
        self.assertIn("report", tools)
        self.assertEqual(set(os.listdir(self.installed("bin"))),
                         {"gradwire"} | {f"gradwire-{name}" for name in tools})
        self.assertLessEqual({(name,) for name in tools}, set(self.helps))
        for name in tools:  # each gets as far as to refuse what it does not know
            done = gwrun.finished([self.installed("bin", f"gradwire-{name}"), "--nonesuch"], cwd=self.dir)
            self.assertEqual((done.returncode, "Traceback" in done.stderr), (2, False), done.stderr)

    def test_a_tool_that_cannot_be_started(self):
        broken = self.installed("bin", "gradwire-broken")
        gwrun.write(broken, "#!/nonexistent\n# gradwire broken: be of no use\n")
        self.addCleanup(os.remove, broken)
        os.chmod(broken, 0o755)
        gradwire = self.installed("bin", "gradwire")
        self.assertIn("  broken       be of no use\n", said(gradwire, "help"))
        for ranks in "1", "2":
            done = gwrun.finished([gwrun.MPIEXEC, "-n", ranks, gradwire, "broken"])
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertRegex(done.stderr, "^gradwire: .*/gradwire-broken: No such file.*\n$")

    def test_a_study_from_its_spec_to_its_report(self):
        gwrun.write(self.path("small.yaml"), SPEC)
        self.call("gradwire", "run", "small.yaml")
        study = self.path("runs", "small")
        runs = [run["folder"] for run in gwrun.read_json(study, "study.json")["runs"]]
        self.assertEqual(len(runs), 4)
        table = self.call("gradwire", "table", *(os.path.join(study, run) for run in runs))
        self.assertIn("compute", table)
        self.call("gradwire-compare", study, study)
        self.call("gradwire", "report", study)
        self.assertTrue(os.path.exists(os.path.join(study, "report.html")))

    def test_plugins_need_the_installed_tree_alone(self):
        """A plugin of each kind by pkg-config, and one by CMake; all keep their contract."""
        folder = self.path("plugins")
        os.mkdir(folder)
        mpicc = shutil.which("mpicc.mpich") or "mpicc"  # as the build chooses
        pkg = dict(os.environ, PKG_CONFIG_PATH=self.installed("share", "pkgconfig"))
        include = said("pkg-config", "--cflags", "gradwire", env=pkg).split()
        headers = Path(include[1][2:])
        for header in headers.rglob("*.h"):
            said(mpicc, "-std=c11", "-Werror", *include, "-fsyntax-only", "-x", "c", "-include",
                 str(header.relative_to(headers)), os.devnull)
        build, test = commands("extend-plugin.md")
        for name in KINDS:
            text = examples()[name].replace(f"gw_{KINDS[name]}_{name}", f"gw_{KINDS[name]}_plugin")
            gwrun.write(os.path.join(folder, name + ".c"), text)
            command = build[0].replace("sign", name)
            if KINDS[name] not in ("codec", "timetable"):  # these see no MPI
                command = command.replace("cc", mpicc, 1)
            said("bash", "-c", command, cwd=folder, env=pkg)
        gwrun.write(os.path.join(folder, "CMakeLists.txt"), PROJECT)
        os.remove(os.path.join(folder, "whole.so"))
        said("cmake", "-B", ".", f"-DCMAKE_PREFIX_PATH={self.prefix}",
             f"-DMPI_C_COMPILER={mpicc}", cwd=folder)
        said("cmake", "--build", ".", cwd=folder)
        said(os.environ["MPIEXEC"], "-n", "2", self.installed("bin", "gradwire"), "train", "--steps", "3",
             "--data", "synthetic:samples=600", "--layers", "8", "--overhead", "0", "--quiet",
             "--comm", "./whole.so:algo=./chain.so", "--compress", "./sign.so", cwd=folder)
        for name, kind in KINDS.items():
            program, path = shlex.split(test[0].replace("sign", name))
            said_so = said(os.path.join(SOURCE, program), path, os.environ["BUILD"], "2", cwd=folder)
            self.assertIn(f"{kind} {os.path.realpath(folder)}/{name}.so: keeps", said_so)

    def client(self, folder):
        """The header's example, as a program of the installed tree alone."""
        gwrun.write(os.path.join(folder, "client.c"), program(self.installed("include", "gradwire.h")))

    def runs(self, program, folder, **more):
        """As a program that uses the library: its options by the variable."""
        env = dict(os.environ, GRADWIRE="--out run", **more)
        said(os.environ["MPIEXEC"], "-n", "2", program, cwd=folder, env=env)
        run = gwrun.run_json(os.path.join(folder, "run"))
        self.assertEqual((run["program"], run["machine"]["ranks"], run["comm"]["strategy"]),
                         ("library", 2, "sharded"))

    @unittest.skipIf(gwrun.cached("GW_SANITIZE"), UNSANITIZED)
    def test_client_by_pkg_config(self):
        folder = self.path("by-pkg-config")
        self.client(folder)
        pkg = dict(os.environ, PKG_CONFIG_PATH=self.installed("share", "pkgconfig"))
        words = said("pkg-config", "--cflags", "--libs", "gradwire", env=pkg).split()
        said("cc", "-std=c99", "-Wall", "-Werror", "client.c", *words, "-o", "client", cwd=folder)
        place = next(word[2:] for word in words if word.startswith("-L"))
        self.runs("./client", folder, LD_LIBRARY_PATH=os.path.realpath(place))

    @unittest.skipIf(gwrun.cached("GW_SANITIZE"), UNSANITIZED)
    def test_client_by_cmake(self):
        folder = self.path("by-cmake")
        self.client(folder)
        gwrun.write(os.path.join(folder, "CMakeLists.txt"), CLIENT)
        said("cmake", "-B", "build", f"-DCMAKE_PREFIX_PATH={self.prefix}", cwd=folder)
        said("cmake", "--build", "build", cwd=folder)
        self.runs("build/client", folder)

    def test_examples_alone(self):
        """As a project of their own; tiny_dnn, which takes long to compile, is only configured."""
        folder = self.path("examples")
        shutil.copytree(self.installed("share", "gradwire", "examples"), folder)
        told = said("cmake", "-B", "build", f"-DCMAKE_PREFIX_PATH={self.prefix}",
                    f"-DCMAKE_C_COMPILER={gwrun.cached('CMAKE_C_COMPILER')}",
                    f"-DGW_SANITIZE={gwrun.cached('GW_SANITIZE') or ''}", cwd=folder)
        gpt = [] if "gpt is left out" in told else ["gpt"]
        said("cmake", "--build", "build", "--target", "least_squares", *gpt, cwd=folder)
        self.runs("build/least_squares", folder)
        for name in gpt:
            self.assertIn("usage: gpt", said(os.path.join(folder, "build", name), "--help"))

    def test_profiles_by_name(self):
        words = ("--steps", "1", "--speed", "1000")
        told = said(os.environ["MPIEXEC"], "-n", "2", self.installed("bin", "gradwire"), "replay", "resnet18", *words)
        self.assertIn("replayed: resnet18, 62 tensors", told)
        told = self.call("gradwire", "simulate", "--profile", "gpt2-124m", "--ranks", "4", "--link", "10gbit")
        self.assertIn("gpt2-124m, 124439808 parameters", told)
        gwrun.refusal(gwrun.finished([self.installed("bin", "gradwire"), "replay", "gpt2", *words], cwd=self.dir),
                      "gpt2: no such file, and no profile of that name: name one of bert-large, gpt2-124m, resnet18, resnet50")

    @unittest.skipIf(gwrun.cached("GW_SANITIZE"), UNSANITIZED)
    def test_python_finds_library_and_launcher(self):
        env = {name: value for name, value in os.environ.items() if name != "GRADWIRE_LIBRARY"}
        env.update(PYTHONPATH=os.path.join(SOURCE, "python"), PATH=f"{self.installed('bin')}:{os.environ['PATH']}")
        told = said(sys.executable, "-B", "-c", "from gradwire import library as l; print(l.find()[0], l.location(), l.mpiexec())",
                    env=env)
        self.assertRegex(told, f"gradwire in PATH {self.prefix}/lib.*/libgradwire.so.0.1.0 {self.prefix}/.*/mpiexec\n")

    def test_manual_names_every_option(self):
        manual = gwrun.read(self.installed("share", "man", "man1", "gradwire.1"))
        manual = manual.replace("\\-", "-").replace("\\e", "\\")
        sections = dict(re.findall(r"^\.SS gradwire (.+)\n((?:(?!\.S[SH]).*\n)*)", manual, re.MULTILINE))
        self.assertEqual(set(sections), {" ".join(words) for words in self.helps})
        for words, text in self.helps.items():
            wanted = [(name, value or None) for name, value in OPTION.findall(text)]
            items = re.findall(r"^\.TP\n\\fB(--\S+)\\fR(?: \\fI(\S+)\\fR)?$", sections[" ".join(words)],
                               re.MULTILINE)
            self.assertEqual([(name, value or None) for name, value in items], wanted, words)
        for name, _ in re.findall(r"^        (:\w+)( |$)", said(GRADWIRE, "list"), re.MULTILINE):
            self.assertIn(f"\\fB{name}\\fR", manual)
        self.assertIn("\\fB1f1b\\fR\n", manual)

    def complete(self, *words):
        """What Tab would offer for the last of these words."""
        script = self.installed("share", "bash-completion", "completions", "gradwire")
        return said("bash", "-c", 'source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _gradwire; '
                    'printf "%s\\n" "${COMPREPLY[@]}"', script, self.installed("bin", "gradwire"),
                    *words).split()

    def test_completion_names_every_option(self):
        self.assertEqual(self.complete(""), [name for name, *more in self.helps if not more])
        self.assertEqual(self.complete("bench", ""), [more[0] for _, *more in self.helps if more])
        for words, text in self.helps.items():
            options = [name for name, _ in OPTION.findall(text)]
            self.assertEqual(self.complete(*words, "--"), options)

    def test_completion_names_values(self):
        self.assertEqual(self.complete("train", "--quiet", "--on-nan", ""), ["stop", "skip"])
        self.assertEqual(self.complete("train", "--comm", "iall"), ["iallreduce"])
        self.assertEqual(self.complete("bench", "step", "--compress", "qs"), ["qsgd"])
        self.assertEqual(self.complete("train", "--timetable", "1"), ["1f1b"])
        self.assertEqual(self.complete("train", "--out", ""), [])
