"""The built program as its users run it: `gradwire ...` on N ranks, and its run folders read back."""

import csv
import functools
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import traceback
import types
import unittest

if os.path.basename(sys.argv[0]).startswith("test_"):  # it would end as if all were well
    sys.exit("run a test by ctest, or in tests/python by python3 -m unittest NAME")
GRADWIRE = os.environ["PROGRAM"]
MPIEXEC = os.environ["MPIEXEC"]
SOURCE = os.environ["SOURCE"]
HANG_S = 1200  # what takes longer hangs: no slow or busy machine needs a tenth of it
# For a launcher of Open MPI: seconds from the SIGTERM that it gives its ranks to their SIGKILL.
PATIENT = {"OMPI_MCA_odls_base_sigkill_timeout": "10"}
# What its event loop says at times when ranks end before it has read all, and the frame in which 5.x tells, also when
# told to be quiet, that a rank failed.
LAUNCHER = re.compile(r"^\[warn\] Epoll .*\n+|^-{70,}\nprterun detected that one or more processes exited with non-zero "
                      r"status,\n(?:.*\n)*?-{70,}\n", re.MULTILINE)
sys.path[:0] = [os.path.join(SOURCE, part) for part in ("analysis", "experiments")]


def cached(name):
    """A value of the build's cache, or "" if it has none."""
    found = re.search(rf"^{name}:\w+=(.*)$", read(os.environ["BUILD"], "CMakeCache.txt"), re.MULTILINE)
    return found.group(1) if found else ""


def preload(folder, text, **more):
    """The environment, and `more`, with a library that is loaded before others."""
    source, library = (os.path.join(folder, name) for name in ("first.c", "first.so"))
    write(source, text)
    compiler = cached("MPI_C_COMPILER") or cached("GW_MPICC")
    subprocess.run([compiler, "-shared", "-fPIC", source, "-o", library, "-ldl"], check=True)
    libraries = f"{library} {os.environ.get('LD_PRELOAD', '')}"
    return {**os.environ, **more, "LD_PRELOAD": libraries,
            "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}


def compiler():
    """Compiler and options of the build, from the command that compiled the program's main."""
    command = next(c["command"] for c in read_json(os.environ["BUILD"], "compile_commands.json")
                   if c["file"].endswith("cli/main.c"))
    words = shlex.split(command)
    return words[:words.index("-o")]


def plugin(path, text):
    """The shared object PATH.so of a source in C."""
    write(path + ".c", text)
    subprocess.run([*compiler(), "-shared", "-fPIC", path + ".c", "-o", path + ".so"], check=True)
    return path + ".so"


def by_open_mpi():
    """Whether Open MPI's launcher starts the ranks, as on Ubuntu 24.04."""
    return bool(re.search("OpenRTE|Open MPI", finished([MPIEXEC, "--version"]).stdout))


def command(ranks, *words):
    """Of 0 ranks: one without a launcher, which starts faster. More ranks than cores take one core, if they
    give it away to each other at once (tests/yield.c)."""
    if ranks == 0:
        return [GRADWIRE, *map(str, words)]
    crowded = ranks > os.cpu_count() and "yield" in os.environ.get("LD_PRELOAD", "")
    place = [os.path.join(SOURCE, "tests", "one_core")] if crowded else []
    return [*place, MPIEXEC, "-n", str(ranks), GRADWIRE, *map(str, words)]


def finished(words, **more):
    """The finished process of any command, with what it says as text; one that hangs raises."""
    words = [word if isinstance(word, bytes) else str(word) for word in words]
    done = subprocess.run(words, text=True, errors="backslashreplace", capture_output=True,
                          stdin=subprocess.DEVNULL, check=False, **{"timeout": HANG_S, **more})
    done.stderr = LAUNCHER.sub("", done.stderr)
    return done


def well(done):
    """What a process printed that ended with status 0; raises otherwise."""
    if done.returncode != 0:
        raise AssertionError(f"{done.args}: {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def quiet(done):
    """As well(), without a word on standard error."""
    if done.stderr:
        raise AssertionError(f"{done.args}: {done.returncode}: {done.stderr}")
    return well(done)


def said(*words, **more):
    """Standard output of any command that succeeds."""
    return well(finished(words, **more))


def run(ranks, *words, **more):
    """The finished process of gradwire on so many ranks."""
    return finished(command(ranks, *words), **more)


def ok(ranks, *words, **more):
    """Finished process that ended with status 0; raises otherwise."""
    done = run(ranks, *words, **more)
    well(done)
    return done


def clean(ranks, *words, **more):
    """As ok(), without a word on standard error."""
    done = run(ranks, *words, **more)
    quiet(done)
    return done


def refusal(done, *says):
    """The one line of a process that refuses what its user wants: it has all these words."""
    told = done.returncode, done.stdout, done.stderr
    if told[:2] != (2, "") or done.stderr.count("\n") != 1 or not all(word in done.stderr for word in says):
        raise AssertionError(f"{done.args} is not refused, or without {says}: {told}")
    return done.stderr


def failure(done, status=1):
    """The one line of gradwire's own that a process said which ended with this status."""
    lines = [line for line in done.stderr.splitlines() if "gradwire:" in line]
    if (done.returncode, len(lines)) != (status, 1):
        raise AssertionError(f"{done.args}: {done.returncode}: {done.stderr}")
    return lines[0]


def script(path, *words):
    """The finished process of a Python script, a fork of this one: the libraries that the test has
    imported take longer to load than the script takes to run."""
    code = script_code(path)
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                signal.alarm(HANG_S)
                os.dup2(out.fileno(), 1)
                os.dup2(err.fileno(), 2)
                status = run_script(path, code, words)
            finally:
                os._exit(status if isinstance(status, int) else 1)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        out.seek(0), err.seek(0)
        return subprocess.CompletedProcess([path, *words], status, out.read(), err.read())


@functools.cache
def script_code(path):
    """The compiled script; what it imports is loaded here, once for all forks."""
    with open(path, encoding="utf-8") as file:
        code = compile(file.read(), path, "exec")
    sys.path.insert(0, os.path.dirname(path))
    exec(code, {"__name__": "imported", "__file__": path})
    return code


def run_script(path, code, words):
    """Its exit status, in a process of its own."""
    sys.stdout, sys.stderr = (open(fd, "w", encoding="utf-8", closefd=False) for fd in (1, 2))
    sys.argv = [path, *words]
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__file__ = path
    status = 0
    try:
        exec(code, vars(main))
    except SystemExit as end:
        status = end.code or 0
        if not isinstance(status, int):
            print(status, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def train(ranks, out, *words, overhead=0, ceilings="off", counters="none", **more):
    """The run folder's run.json after `gradwire train --quiet`; raises unless that succeeds.
    --overhead and --ceilings are off, since the rehearsals of the one and the measurements of the
    other would take longer than most of these runs; --papi-group is none, since what a CPU counts
    differs from machine to machine, and on some from run to run. None: the program's defaults.
    `more`: as subprocess.run has it."""
    if {"--profile", "--papi-events"} & set(words):
        counters = None
    for option, value in (("--overhead", overhead), ("--ceilings", ceilings), ("--papi-group", counters)):
        if value is not None and option not in words:
            words = (option, value, *words)
    ok(ranks, "train", "--quiet", "--out", out, *words, **more)
    return run_json(out)


def warnings(text):
    """The lines of warning in what train said, but for those that the machine is to blame for."""
    return [line for line in text.splitlines()
            if line.startswith("warning: ") and "the step time is unsettled" not in line]


def read(*names):
    """The text of a file."""
    with open(os.path.join(*names), encoding="utf-8") as file:
        return file.read()


def read_bytes(*names):
    with open(os.path.join(*names), "rb") as file:
        return file.read()


def read_json(*names):
    return json.loads(read(*names))


def rows(*names):
    """Rows of a CSV file, each a dict of texts."""
    with open(os.path.join(*names), newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write_rows(path, table):
    """Makes a CSV file of rows, which are dicts with the same keys."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, table[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)


def write(path, content):
    """Makes a file, and its folders, of a text, of bytes, or of another value as JSON."""
    if not isinstance(content, (str, bytes, bytearray)):
        content = json.dumps(content)
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)


def flip(path, at):
    """Changes a bit of a file."""
    data = bytearray(read_bytes(path))
    data[at] ^= 4
    write(path, data)


def run_json(*out):
    return read_json(*out, "run.json")


def contents(folder):
    """{path: its bytes} of all files below a folder."""
    paths = [os.path.join(place, name) for place, _, names in os.walk(folder) for name in names]
    return {path: read_bytes(path) for path in paths}


def change(out, change_it):
    """run.json after change_it(its content)."""
    content = run_json(out)
    change_it(content)
    write(os.path.join(out, "run.json"), content)


def batches(out):
    return rows(out, "batches.csv")


def model(out):
    return read_bytes(out, "model.gw")


def losses(out):
    """Mean loss of each global batch, by step: the ranks' means weighted with their samples."""
    sums, samples = {}, {}
    for row in batches(out):
        step, n = int(row["step"]), int(row["samples"])
        if n > 0:
            sums[step] = sums.get(step, 0.0) + n * float(row["loss"])
            samples[step] = samples.get(step, 0) + n
    return [sums[step] / samples[step] for step in sorted(sums)]


def apart(curve, other):
    """The greatest relative difference of two curves of the same length."""
    return max(abs(a - b) / b for a, b in zip(curve, other, strict=True))


def names(table, root=SOURCE):
    """The names in a .def file."""
    return re.findall(r"^X\((\w+)\)", read(root, table), re.MULTILINE)


class Case(unittest.TestCase):
    """A test with a temporary folder of its own, `dir`, and the place of a run in it, `out`."""

    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.dir = holder.name
        self.out = self.path("run")

    def path(self, *names):
        return os.path.join(self.dir, *names)

    def new(self):
        """The place of another run."""
        return os.path.join(tempfile.mkdtemp(dir=self.dir), "run")

    def write(self, name, text):
        """The path of a file that is made here."""
        write(self.path(name), text)
        return self.path(name)


class Shared(unittest.TestCase):
    """Tests that have one temporary folder together, `dir`."""

    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        cls.dir = holder.name

    @classmethod
    def path(cls, *names):
        return os.path.join(cls.dir, *names)
