"""The tree's layout: who may include whom, and that registries and files agree."""

import os
import re
import tempfile
import unittest

ROOT = os.environ["SOURCE"]

LONGEST_FILE, LONGEST_FUNCTION, LONGEST_LINE = 500, 60, 100
ROOMS = "docs/architecture.md"
NOTES = 38  # the column of the drawing where its rooms end

# Rooms that must not come to see MPI, not even through a header of another room.
WITHOUT_MPI = {"base", "nn", "compress"}

# .def file, folder of its sources, and the symbol that a member defines.
REGISTRIES = [
    ("compress/codecs.def", "compress/codec", "gw_codec_ops gw_codec_"),
    ("comm/algos.def", "comm/algo", "gw_algo_ops gw_algo_"),
    ("comm/strategies.def", "comm/strategy", "gw_strategy_ops gw_strategy_"),
    ("comm/timetables.def", "comm/timetable", "gw_timetable_ops gw_timetable_"),
    ("src/cli/commands.def", "src/cli", "gw_command gw_command_"),
]

# Clients of the library, and the headers of it that they may include.
CLIENTS = {"train", "checkpoint", "step"}
LIBRARY = {"comm", "run", "api"}
DOORS = {"gradwire.h", "api/inside.h"}

TOP_LEVEL = ["CMakeLists.txt", "CMakePresets.json", "LICENSE", "README.md", "CONTRIBUTING.md",
             "CHANGELOG.md", "CITATION.cff", "packages.txt", "quickstart", "include", "src", "comm", "compress",
             "docs", "experiments", "analysis", "examples", "tests", "python", "profiles"]

# Calls that only a fabric makes, and what docs/architecture.md lists beside it.
OF_THE_WORLD = re.compile(r"\b(MPI_[A-Z][a-z]\w*|gw_(?:agree|allreduce|allreduce_begin|barrier|bcast|comm_dup|message|wait"
                          r"|wait_asleep)|clock_gettime|nanosleep|sched_yield)\(")

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def may_include(page):
    """Room -> the rooms whose headers its files may include, of the table in docs/architecture.md:
    "what ROOM may" stands for all that ROOM has."""
    rooms = {}
    for room, cell in re.findall(r"^\| `(\w+)` \|(.*)\|$", page, re.MULTILINE):
        inherited = re.findall(r"what `(\w+)` may", cell)
        rooms[room] = set(re.findall(r"(?<!what )`(\w+)`", cell)).union(
            *(rooms[other] for other in inherited))
    return rooms


def bad_drawing(page):
    """One line for each room that the drawing leaves out, or does not place above what it includes."""
    drawn = re.search(r"```\n(.*?)```", page, re.DOTALL).group(1).splitlines()
    level = {room: i for i, line in enumerate(drawn) for room in line[:NOTES].split()}
    for room, others in may_include(page).items():
        if room not in level:
            yield f"{room} is not drawn"
        else:
            yield from (f"{room} is drawn no higher than {other}, which it includes"
                        for other in sorted(others) if level.get(other, -1) <= level[room])


def bad_ways(page, root):
    """One line for each way that passes too many files, and each file that lacks its function."""
    for section in page.split("\n### ")[1:]:
        title = section.splitlines()[0]
        limit = int(re.search(r"at most (\d+) files", section).group(1))
        steps = re.findall(r"^\d+\. `([^`]+)`: `(\w+)`", section, re.MULTILINE)
        if not 0 < len(steps) <= limit or len(steps) != len(re.findall(r"(?m)^\d+\.", section)):
            yield f"{title}: {len(steps)} files, at most {limit}"
        for path, function in steps:
            whole = os.path.join(root, path)
            if not os.path.exists(whole) or not re.search(rf"\b{function}\b", read(whole)):
                yield f"{title}: no {function} in {path}"


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


def bad_includes(root, rooms):
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
        if room not in rooms:
            yield f"{name}: {ROOMS} has no room '{room}'"
            continue
        for quote, target in targets:
            other = target.split("/")[0]
            if quote == '"' and (other not in rooms or "/" not in target):
                yield f'{name}: "{target}" does not begin with a room, as in "base/err.h"'
            elif quote == '"' and other != room and other not in rooms[room]:
                yield f"{name}: {room} must not include {other} ({target})"
        chain = sees_mpi(name, {name}) if room in WITHOUT_MPI else None
        if chain:
            yield f"{name}: {room} must not see MPI: {' -> '.join(chain)}"


def bad_calls(page, root):
    """One line for each file of comm that calls the world past its fabric, and each that is listed as one and does not."""
    listed = set(re.findall(r"^\| `(comm/[\w./]+)` \|", page, re.MULTILINE))
    for name, room, path in sources(root):
        calls = sorted(set(OF_THE_WORLD.findall(read(path)))) if room == "comm" else []
        if calls and name not in listed:
            yield f"{name}: calls {', '.join(calls)}, for which a lane has its fabric"
        elif not calls and name in listed:
            yield f"{name}: calls neither MPI nor a clock: {ROOMS} need not list it"


def bad_clients(root):
    """One line for each header of the library's inside that a client includes."""
    for name, room, path in sources(root):
        for _, target in INCLUDE.findall(read(path)) if room in CLIENTS else []:
            if target.split("/")[0] in LIBRARY and target not in DOORS:
                yield f"{name}: {room} is a client of the library and must not include {target}"


def module_of(name):
    """A .c file and its header are one module; so is what they share as NAME_parts.h."""
    return re.sub(r"(_parts)?\.(c|h|def)$", "", name)


def circles(root):
    """One line for each set of modules that include each other, however many steps it takes."""
    needs = {}
    for name, _, path in sources(root):
        found = needs.setdefault(module_of(name), set())
        found |= {module_of(target) for quote, target in INCLUDE.findall(read(path)) if quote == '"'}
    for module, found in needs.items():
        found.discard(module)
    while True:  # what needs nothing that is left is in no circle
        free = {module for module, found in needs.items() if not found & needs.keys()}
        if not free:
            break
        needs = {module: found for module, found in needs.items() if module not in free}
    while True:  # nor is what nothing left needs
        needed = set().union(*needs.values()) if needs else set()
        free = needs.keys() - needed
        if not free:
            break
        needs = {module: found for module, found in needs.items() if module not in free}
    if needs:
        yield f"a circle among {', '.join(sorted(needs))}"


def too_long(name, text):
    """One line for a file, and for each function of a C file, that outgrew its room."""
    lines = text.splitlines()
    if len(lines) > LONGEST_FILE:
        yield f"{name}: {len(lines)} lines: more than {LONGEST_FILE}"
    begin = 0
    for i, line in enumerate(lines if name.endswith((".c", ".h")) else [], 1):
        if len(line) > LONGEST_LINE:
            yield f"{name}:{i}: a line of {len(line)} columns: more than {LONGEST_LINE}"
        if not begin and line.endswith(") {"):
            begin = i
        elif line == "}":
            length = i - begin + 1
            if begin and length > LONGEST_FUNCTION:
                yield f"{name}:{begin}: a function of {length} lines: more than {LONGEST_FUNCTION}"
            begin = 0


def scripts_and_tests(root):
    """Every file that Python or a shell runs, and the tests' C files."""
    for top in ("analysis", "experiments", "tests", "cmake", "python", "profiles", "."):
        for folder, below, names in os.walk(os.path.join(root, top)):
            if top == ".":
                below.clear()
            for name in names:
                path = os.path.join(folder, name)
                runs = "." not in name and os.access(path, os.X_OK)
                if runs or name.endswith((".py", ".sh", ".c", ".h")):
                    yield path


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
        for below, _, files in os.walk(os.path.join(root, folder)):
            for file in files:
                if file.endswith(".c"):
                    pattern = rf"^const {symbol}(\w+)\s*=\s*\{{"
                    for name in re.findall(pattern, read(os.path.join(below, file)), re.MULTILINE):
                        defined[name] = file
        for name in listed:
            if defined.get(name) != f"{name}.c":
                yield f"{def_file}: X({name}), but {folder}/{name}.c does not define {symbol}{name}"
        for name, file in sorted(defined.items()):
            if name not in listed:
                yield f"{folder}/{file} defines {name}, but {def_file} has no X({name})"


PAGE = read(os.path.join(ROOT, ROOMS))


class Layout(unittest.TestCase):
    def test_top_level(self):
        self.assertEqual([n for n in TOP_LEVEL if not os.path.exists(os.path.join(ROOT, n))], [])

    def test_includes(self):
        self.assertGreater(len(list(sources(ROOT))), 0)
        self.assertEqual(list(bad_includes(ROOT, may_include(PAGE))), [])
        self.assertEqual(list(bad_drawing(PAGE)), [])

    def test_clients(self):
        self.assertEqual(list(bad_clients(ROOT)), [])

    def test_calls(self):
        self.assertEqual(list(bad_calls(PAGE, ROOT)), [])

    def test_ways(self):
        self.assertEqual(list(bad_ways(PAGE, ROOT)), [])

    def test_circles(self):
        self.assertEqual(list(circles(ROOT)), [])

    def test_lengths(self):
        paths = [path for _, _, path in sources(ROOT)] + list(scripts_and_tests(ROOT))
        for one in ("experiments/run", "tests/mpi/check.h", "tests/unit/test_ledger.c"):
            self.assertIn(os.path.join(ROOT, one), paths)
        self.assertEqual([line for path in paths
                          for line in too_long(os.path.relpath(path, ROOT), read(path))], [])

    def test_registries(self):
        self.assertEqual(list(bad_registries(ROOT)), [])

    def test_names_that_a_kill_would_leave(self):
        """What ranks share, and temporary files, have none: src/base/file.c says how."""
        self.assertEqual([os.path.relpath(path, ROOT) for room, _, path in sources(ROOT)
                          if re.search(r"\b(shm_open|mkstemp|mkdtemp|tmpnam|tempnam|mknod|mkfifo|bind)\(", read(path))],
                         [])


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
        found = [line.split(":")[0] for line in bad_includes(self.dir.name, may_include(PAGE))]
        self.assertEqual(found, ["base/agree.h", "comm/timed.c", "compress/bare.c", "new/x.c",
                                 "nn/direct.c", "nn/indirect.c"])

    def test_clients(self):
        self.write("src/step/a.c", '#include "api/inside.h"\n#include <gradwire.h>\n#include "comm/lane.h"\n')
        self.write("src/train/b.h", '#include "run/session.h"\n')
        self.write("src/train/c.c", '  # include "api/handle.h"\n')
        self.write("src/select/d.c", '#include "comm/algo.h"\n')
        found = sorted(line.split(":")[0] for line in bad_clients(self.dir.name))
        self.assertEqual(found, ["step/a.c", "train/b.h", "train/c.c"])

    def test_calls(self):
        self.write("comm/fabric/mpi.c", "    GW_MPI(MPI_Isend_c(data, f->comm, r)); /* its own */\n")
        self.write("comm/sends.c", "e = gw_agree(lane->comm, e);\n    sched_yield();\n")
        self.write("comm/idle.c", "MPI_Comm comm; /* gw_queue_wait(q, s), as MPI_Wait */\n")
        self.write("src/mpi/wait.c", "MPI_Test(request);\n")
        page = "| `comm/fabric/mpi.c` | the fabric |\n| `comm/idle.c` | nothing |\n"
        self.assertEqual(sorted(bad_calls(page, self.dir.name)),
                         ["comm/idle.c: calls neither MPI nor a clock: docs/architecture.md need not list it",
                          "comm/sends.c: calls gw_agree, sched_yield, for which a lane has its fabric"])

    def test_drawing(self):
        page = "```\n{:38}the top\n{:38}below\n```\n| `a` | `b`, `c` |\n| `b` | |\n| `c` | |\n"
        self.assertEqual(list(bad_drawing(page.format("a", "b  c"))), [])
        self.assertEqual(list(bad_drawing(page.format("a  b", ""))),
                         ["a is drawn no higher than b, which it includes",
                          "a is drawn no higher than c, which it includes", "c is not drawn"])

    def test_ways(self):
        self.write("src/a.c", "int a_open(void) {\n")
        page = "\n### A way\n\nAt last: at most {} files.\n\n1. `src/a.c`: `a_open` does.\n2. `src/a.c`: `{}`\n"
        self.assertEqual(list(bad_ways(page.format(2, "a_open"), self.dir.name)), [])
        self.assertEqual(list(bad_ways(page.format(1, "a_close"), self.dir.name)),
                         ["A way: 2 files, at most 1", "A way: no a_close in src/a.c"])

    def test_circles(self):
        self.write("src/prof/a.h", '#include "prof/b.h"\n')
        self.write("src/prof/a.c", '#include "prof/a.h"\n#include "prof/a_parts.h"\n')
        self.write("src/prof/a_parts.h", '#include "prof/a.h"\n')
        self.write("src/prof/b.h", "")
        self.assertEqual(list(circles(self.dir.name)), [])
        self.write("src/prof/b.c", '#include "prof/c.h"\n')
        self.write("src/prof/c.c", '#include "prof/a.h"\n#include "prof/free.h"\n')
        self.write("src/prof/free.h", "")
        self.write("src/prof/user.c", '#include "prof/a.h"\n')
        self.assertEqual(list(circles(self.dir.name)), ["a circle among prof/a, prof/b, prof/c"])

    def test_lengths(self):
        function = "static int f(void) {\n" + (LONGEST_FUNCTION - 1) * "    g();\n"
        self.assertEqual(list(too_long("a.c", LONGEST_FILE * "\n" + function + "}\n")),
                         ["a.c: 561 lines: more than 500",
                          "a.c:501: a function of 61 lines: more than 60"])
        self.assertEqual(list(too_long("a.h", "\n/* " + 95 * "x" + " */\n")),
                         ["a.h:2: a line of 101 columns: more than 100"])
        self.assertEqual(list(too_long("a.c", function.replace("    g();\n", "", 1) + "}\n")), [])

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
