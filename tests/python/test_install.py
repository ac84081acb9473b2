"""What `cmake --install` leaves works out of the installed folder alone."""

import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import unittest

import gwrun
from gwrun import GRADWIRE, SOURCE
from test_contributing import KINDS, blocks, examples

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


def said(*command, **more):
    """Standard output of a command that succeeds."""
    done = subprocess.run(command, text=True, capture_output=True, check=False,
                          stdin=subprocess.DEVNULL, **more)
    if done.returncode != 0:
        raise AssertionError(f"{command}: {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


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


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.top = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.top)
        prefix = os.path.join(cls.top, "first")
        said("cmake", "--install", os.environ["BUILD"], "--prefix", prefix)
        cls.prefix = os.path.join(cls.top, "moved")  # nothing may name the place
        os.rename(prefix, cls.prefix)
        cls.helps = helps()

    def path(self, *names):
        return os.path.join(self.prefix, *names)

    def call(self, tool, *words):
        return said(self.path("bin", tool), *words, cwd=self.top)

    def test_every_tool_is_there(self):
        """Whatever can be executed in analysis/ and experiments/."""
        tools = {name for folder in ("analysis", "experiments")
                 for name in os.listdir(os.path.join(SOURCE, folder))
                 if "." not in name and os.path.isfile(os.path.join(SOURCE, folder, name))}
        self.assertIn("report", tools)
        self.assertEqual(set(os.listdir(self.path("bin"))),
                         {"gradwire"} | {f"gradwire-{name}" for name in tools})
        self.assertLessEqual({(name,) for name in tools}, set(self.helps))
        for name in tools:  # each gets as far as to refuse what it does not know
            done = subprocess.run([self.path("bin", f"gradwire-{name}"), "--nonesuch"], text=True,
                                  capture_output=True, check=False, cwd=self.top)
            self.assertEqual((done.returncode, "Traceback" in done.stderr), (2, False), done.stderr)

    def test_a_tool_that_cannot_be_started(self):
        broken = self.path("bin", "gradwire-broken")
        with open(broken, "w", encoding="utf-8") as file:
            file.write("#!/nonexistent\n# gradwire broken: be of no use\n")
        self.addCleanup(os.remove, broken)
        os.chmod(broken, 0o755)
        gradwire = self.path("bin", "gradwire")
        self.assertIn("  broken       be of no use\n", said(gradwire, "help"))
        for ranks in "1", "2":
            done = subprocess.run([gwrun.MPIEXEC, "-n", ranks, gradwire, "broken"], text=True,
                                  capture_output=True, check=False, timeout=gwrun.HANG_S)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertRegex(done.stderr, "^gradwire: .*/gradwire-broken: No such file.*\n$")

    def test_a_study_from_its_spec_to_its_report(self):
        with open(os.path.join(self.top, "small.yaml"), "w", encoding="utf-8") as file:
            file.write(SPEC)
        self.call("gradwire", "run", "small.yaml")
        study = os.path.join(self.top, "runs", "small")
        with open(os.path.join(study, "study.json"), encoding="utf-8") as file:
            runs = [run["folder"] for run in json.load(file)["runs"]]
        self.assertEqual(len(runs), 4)
        table = self.call("gradwire", "table", *(os.path.join(study, run) for run in runs))
        self.assertIn("compute", table)
        self.call("gradwire-compare", study, study)
        self.call("gradwire", "report", study)
        self.assertTrue(os.path.exists(os.path.join(study, "report.html")))

    def test_plugins_need_the_installed_tree_alone(self):
        """A plugin of each kind by pkg-config, and one by CMake; all keep their contract."""
        folder = os.path.join(self.top, "plugins")
        os.mkdir(folder)
        mpicc = shutil.which("mpicc.mpich") or "mpicc"  # as the build chooses
        pkg = dict(os.environ, PKG_CONFIG_PATH=self.path("share", "pkgconfig"))
        include = said("pkg-config", "--cflags", "gradwire", env=pkg).split()
        for room in os.scandir(include[1][2:]):
            for name in os.listdir(room):
                said(mpicc, "-std=c11", "-Werror", *include, "-fsyntax-only", "-x", "c", "-include",
                     f"{room.name}/{name}", os.devnull)
        build, test = commands("extend-plugin.md")
        for name in KINDS:
            with open(os.path.join(folder, name + ".c"), "w", encoding="utf-8") as file:
                file.write(examples()[name].replace(f"gw_{KINDS[name]}_{name}", f"gw_{KINDS[name]}_plugin"))
            command = build[0].replace("sign", name)
            if KINDS[name] not in ("codec", "timetable"):  # these see no MPI
                command = command.replace("cc", mpicc, 1)
            said("bash", "-c", command, cwd=folder, env=pkg)
        with open(os.path.join(folder, "CMakeLists.txt"), "w", encoding="utf-8") as file:
            file.write(PROJECT)
        os.remove(os.path.join(folder, "whole.so"))
        said("cmake", "-B", ".", f"-DCMAKE_PREFIX_PATH={self.prefix}",
             f"-DMPI_C_COMPILER={mpicc}", cwd=folder)
        said("cmake", "--build", ".", cwd=folder)
        said(os.environ["MPIEXEC"], "-n", "2", self.path("bin", "gradwire"), "train", "--steps", "3",
             "--data", "synthetic:samples=600", "--layers", "8", "--overhead", "0", "--quiet",
             "--comm", "./whole.so:algo=./chain.so", "--compress", "./sign.so", cwd=folder)
        for name, kind in KINDS.items():
            program, path = shlex.split(test[0].replace("sign", name))
            said_so = said(os.path.join(SOURCE, program), path, os.environ["BUILD"], "2", cwd=folder)
            self.assertIn(f"{kind} {os.path.realpath(folder)}/{name}.so: keeps", said_so)

    def client(self, folder):
        """The header's example, as a program of the installed tree alone."""
        os.mkdir(folder)
        with open(self.path("include", "gradwire.h"), encoding="utf-8") as file:
            text = file.read()
        lines = re.findall(r"^ \*      (.*)$", text, re.MULTILINE)
        with open(os.path.join(folder, "client.c"), "w", encoding="utf-8") as file:
            file.write("\n".join(line.removeprefix(" ") for line in lines) + "\n")

    def runs(self, program, folder, **more):
        """As a program that uses the library: its options by the variable."""
        env = dict(os.environ, GRADWIRE="--out run", **more)
        said(os.environ["MPIEXEC"], "-n", "2", program, cwd=folder, env=env)
        run = gwrun.run_json(os.path.join(folder, "run"))
        self.assertEqual((run["program"], run["machine"]["ranks"], run["comm"]["strategy"]),
                         ("library", 2, "sharded"))

    @unittest.skipIf(gwrun.cached("GW_SANITIZE"), UNSANITIZED)
    def test_client_by_pkg_config(self):
        folder = os.path.join(self.top, "by-pkg-config")
        self.client(folder)
        pkg = dict(os.environ, PKG_CONFIG_PATH=self.path("share", "pkgconfig"))
        words = said("pkg-config", "--cflags", "--libs", "gradwire", env=pkg).split()
        said("cc", "-std=c99", "-Wall", "-Werror", "client.c", *words, "-o", "client", cwd=folder)
        place = next(word[2:] for word in words if word.startswith("-L"))
        self.runs("./client", folder, LD_LIBRARY_PATH=os.path.realpath(place))

    @unittest.skipIf(gwrun.cached("GW_SANITIZE"), UNSANITIZED)
    def test_client_by_cmake(self):
        folder = os.path.join(self.top, "by-cmake")
        self.client(folder)
        with open(os.path.join(folder, "CMakeLists.txt"), "w", encoding="utf-8") as file:
            file.write(CLIENT)
        said("cmake", "-B", "build", f"-DCMAKE_PREFIX_PATH={self.prefix}", cwd=folder)
        said("cmake", "--build", "build", cwd=folder)
        self.runs("build/client", folder)

    def test_examples_alone(self):
        """As a project of their own; tiny_dnn, which takes long to compile, is only configured."""
        folder = os.path.join(self.top, "examples")
        shutil.copytree(os.path.join(SOURCE, "examples"), folder)
        told = said("cmake", "-B", "build", f"-DCMAKE_PREFIX_PATH={self.prefix}",
                    f"-DCMAKE_C_COMPILER={gwrun.cached('CMAKE_C_COMPILER')}",
                    f"-DGW_SANITIZE={gwrun.cached('GW_SANITIZE') or ''}", cwd=folder)
        gpt = [] if "gpt is left out" in told else ["gpt"]
        said("cmake", "--build", "build", "--target", "least_squares", *gpt, cwd=folder)
        self.runs("build/least_squares", folder)
        for name in gpt:
            self.assertIn("usage: gpt", said(os.path.join(folder, "build", name), "--help"))

    def test_manual_names_every_option(self):
        with open(self.path("share", "man", "man1", "gradwire.1"), encoding="utf-8") as file:
            manual = file.read().replace("\\-", "-").replace("\\e", "\\")
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
        script = self.path("share", "bash-completion", "completions", "gradwire")
        return said("bash", "-c", 'source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _gradwire; '
                    'printf "%s\\n" "${COMPREPLY[@]}"', script, self.path("bin", "gradwire"),
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


if __name__ == "__main__":
    unittest.main()
