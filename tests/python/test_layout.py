"""The tree's layout: who may include and call whom, and that registries and files agree."""

import os
import re
import shlex
import unittest

import gwrun
import layout_debts
from gwrun import read

ROOT = gwrun.SOURCE

LONGEST_FILE, LONGEST_LINE, MOST_FIELDS = 800, 100, 25
ROOMS = "docs/architecture.md"
NOTES = 38  # the column of the drawing where its rooms end

# Rooms that must not come to see MPI, not even through a header of another room.
WITHOUT_MPI = {"base", "nn", "optim", "compress"}

# .def file, folder of its sources, and the symbol that a member defines.
REGISTRIES = [
    ("compress/codecs.def", "compress/codec", "gw_codec_ops gw_codec_"),
    ("comm/algos.def", "comm/algo", "gw_algo_ops gw_algo_"),
    ("comm/strategies.def", "comm/strategy", "gw_strategy_ops gw_strategy_"),
    ("comm/pipeline/timetables.def", "comm/pipeline/timetable", "gw_timetable_ops gw_timetable_"),
    ("src/optim/optimizers.def", "src/optim", "gw_optimizer_ops gw_optimizer_"),
    ("src/nn/models.def", "src/nn", "gw_model_ops gw_model_"),
    ("src/cli/commands.def", "src/cli", "gw_command gw_command_"),
]

# Clients of the library, and the headers of it that they may include.
CLIENTS = {"train", "checkpoint", "step"}
LIBRARY = {"comm", "run", "api"}
DOORS = {"gradwire.h", "api/inside.h"}

TOP_LEVEL = ["CMakeLists.txt", "CMakePresets.json", "LICENSE", "README.md", "CONTRIBUTING.md",
             "CHANGELOG.md", "CITATION.cff", "packages.txt", "quickstart", "include", "src", "comm", "compress",
             "docs", "experiments", "analysis", "examples", "tests", "python", "profiles",
             "schedules"]

# Calls that only a fabric makes, and what docs/architecture.md lists beside it.
OF_THE_WORLD = re.compile(r"\b(MPI_[A-Z][a-z]\w*|gw_(?:agree|allreduce|allreduce_begin|barrier|bcast|comm_dup|comm_place"
                          r"|message|wait|wait_asleep)|clock_gettime|nanosleep|sched_yield)\(")

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)


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
    """One line for each way that is too long, each file that lacks its function and, of a way of frames, each function
    that does not call the next one, nor what it is said to call it by."""
    for section in page.split("\n### ")[1:]:
        title = section.splitlines()[0]
        limit, what = re.search(r"at most (\d+) (files|frames)", section).groups()
        steps = re.findall(r"^\d+\. `([^`]+)`: `(\w+)`(?:, by `(\w+)`,)?", section, re.MULTILINE)
        if not 0 < len(steps) <= int(limit) or len(steps) != len(re.findall(r"(?m)^\d+\.", section)):
            yield f"{title}: {len(steps)} {what}, at most {limit}"
        for i, (path, function, by) in enumerate(steps):
            whole = os.path.join(root, path)
            text = read(whole) if os.path.exists(whole) else ""
            if not re.search(rf"\b{function}\b", text):
                yield f"{title}: no {function} in {path}"
            calls = by or (steps[i + 1][1] if i + 1 < len(steps) else "")
            body = re.search(rf"^[\w *]*\b{function}\([^;{{]*\) {{\n(.*?)^}}", text, re.MULTILINE | re.DOTALL)
            if what == "frames" and calls and not (body and re.search(rf"\b{calls}\(", body[1])):
                yield f"{title}: {function} does not call {calls}"


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
    """(header, header of the library's inside) of each #include by which a client sees the second, its own or one of a
    header that it comes by: the header of another room, or a door."""
    includes = {name: [target for _, target in INCLUDE.findall(read(path))] for name, _, path in sources(root)}
    clients = {name for name, room, _ in sources(root) if room in CLIENTS}
    seen, ahead = set(clients), sorted(clients)
    while ahead:
        name = ahead.pop()
        for target in includes[name]:
            if target.split("/")[0] in LIBRARY and target not in DOORS:
                yield name, target
            elif target in includes and target not in seen:
                seen.add(target)
                ahead.append(target)


def included(root):
    """{module: those that it includes}. A .c file and its header are one module."""
    needs = {}
    for name, _, path in sources(root):
        found = needs.setdefault(re.sub(r"\.(c|h|def)$", "", name), set())
        found |= {re.sub(r"\.(c|h|def)$", "", target) for quote, target in INCLUDE.findall(read(path)) if quote == '"'}
    return needs


def called(build, root):
    """{file: those whose functions it names}, by the symbols of what was built. MPI's functions are MPI's, though the
    program has some of their names, too."""
    files = {path: known_as for known_as, _, path in sources(root)}
    objects = {}
    for one in gwrun.read_json(build, "compile_commands.json"):
        words = shlex.split(one["command"])
        if one["file"] in files:
            objects.setdefault(files[one["file"]], os.path.join(one["directory"], words[words.index("-o") + 1]))
    at = {path: name for name, path in objects.items()}
    symbols = re.findall(r"^(\S+):[0-9a-f ]* ([TWiU]) (?!MPI_)(\w+)$", gwrun.said("nm", "-A", *at), re.MULTILINE)
    home = {symbol: at[path] for path, kind, symbol in symbols if kind != "U"}
    needs = {name: set() for name in objects}
    for path, kind, symbol in symbols:
        if kind == "U" and symbol in home:
            needs[at[path]].add(home[symbol])
    return needs


def circles(needs):
    """The names in each set of members that need each other, however many steps it takes."""
    def reached(member):
        seen, ahead = set(), [member]
        while ahead:
            fresh = needs.get(ahead.pop(), set()) - seen
            seen |= fresh
            ahead += fresh
        return seen

    reach = {member: reached(member) for member in needs}
    return {", ".join(sorted(other for other in found if member in reach.get(other, ())))
            for member, found in reach.items() if any(member in reach.get(other, ()) for other in found - {member})}


# ---- inside C files ----

FUNCTION = re.compile(r"^(?!return|else|typedef)([a-zA-Z_][\w\s*]*[\s*])(\w+)\(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)"
                      r"[\w\s(),]*?([;{])", re.MULTILINE)
STRUCT = re.compile(r"\bstruct(?: (\w+))? \{")


def code_of(path):
    """The text of a C file without its comments."""
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", read(path), flags=re.DOTALL)


def pieces(text, end):
    """The text cut at each `end` that is in no brackets."""
    depth, begin = 0, 0
    for i, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == end and depth == 0:
            yield text[begin:i]
            begin = i + 1
    yield text[begin:]


def parameters(text):
    """The names of a function's parameters; None: one has no name."""
    for one in pieces(re.sub(r"\[[^\]]*\]", "", text), ","):
        pointer, words = re.search(r"\(\*\s*(\w+)", one), re.findall(r"\w+", one)
        yield pointer[1] if pointer else words[-1] if len(words) > 1 else None


def bad_parameters(root):
    """One line for each function whose declaration names a parameter otherwise than its definition."""
    declared, defined = [], {}
    outside = os.path.join(root, "include", "gradwire.h")
    paths = [(name, path) for name, _, path in sources(root)] + [("gradwire.h", outside)] * os.path.exists(outside)
    for name, path in paths:
        for head, function, text, end in FUNCTION.findall(code_of(path)):
            key = name if "static" in head.split() else "", function
            if end == "{":
                defined[key] = list(parameters(text))
            else:
                declared.append((name, key, list(parameters(text))))
    for name, key, own in declared:
        for one, other in zip(own, defined.get(key, ())):
            if one and other and one != other:
                yield f"{name}: {key[1]}: {one} is {other} where it is defined"


def fields(body):
    """How many a struct has; a struct within is one."""
    return sum(len(list(pieces(re.sub(r"\{.*\}", "", one, flags=re.DOTALL), ","))) for one in pieces(body, ";") if one.strip())


def large_structs(root):
    """{(file, struct): its fields} of those with too many."""
    found = {}
    for name, _, path in sources(root):
        text = code_of(path)
        for begin in STRUCT.finditer(text):
            body = text[begin.end():].split("\n}" if text[begin.end()] == "\n" else "}", 1)
            known_as = begin[1] or re.match(r"\s*(\w*)", body[1])[1]
            if fields(body[0]) > MOST_FIELDS:
                found[name, known_as] = fields(body[0])
    return found


def named_strategies(root):
    """(file, strategy) of each text of a program that is or begins with a strategy's name, outside its own folder."""
    names = gwrun.names("comm/strategies.def", root)
    word = re.compile(rf"\"({'|'.join(names)})(?=[\":,;|])")
    places = [(path, code_of(path)) for name, _, path in sources(root) if not name.startswith("comm/strategy/")]
    for folder, _, files in os.walk(os.path.join(root, "python")):
        paths = [os.path.join(folder, file) for file in files if file.endswith(".py")]
        places += [(path, re.sub(r"^\s*#.*", "", read(path), flags=re.MULTILINE)) for path in paths]
    return {(os.path.relpath(path, root), name) for path, text in places for name in word.findall(text)}


def too_long(name, text):
    """One line for a file, and for each line of a C file, that outgrew its room."""
    lines = text.splitlines()
    if len(lines) > LONGEST_FILE:
        yield f"{name}: {len(lines)} lines: more than {LONGEST_FILE}"
    for i, line in enumerate(lines if name.endswith((".c", ".h")) else [], 1):
        if len(line) > LONGEST_LINE:
            yield f"{name}:{i}: a line of {len(line)} columns: more than {LONGEST_LINE}"


def scripts_and_tests(root):
    """Every file that Python or a shell runs, and the tests' C files."""
    for top in ("analysis", "experiments", "tests", "cmake", "python", "profiles", "schedules", "."):
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
        listed = gwrun.names(def_file, root)
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

    def assert_debts(self, found, listed):
        """What breaks a rule is what layout_debts.py lists, no more and no less."""
        found, listed = set(found), set(listed)
        self.assertEqual((found - listed, listed - found), (set(), set()), "(breaks a rule anew, or has to go from the list)")

    def test_clients(self):
        self.assert_debts(bad_clients(ROOT), layout_debts.SHOWN)

    def test_calls(self):
        self.assertEqual(list(bad_calls(PAGE, ROOT)), [])

    def test_ways(self):
        self.assertEqual(list(bad_ways(PAGE, ROOT)), [])

    def test_circles(self):
        calls = called(os.environ["BUILD"], ROOT)
        self.assertIn("comm/strategy.c", calls["run/session.c"])
        self.assert_debts(circles(included(ROOT)) | circles(calls), layout_debts.CIRCLES)

    def test_parameters(self):
        self.assertEqual(list(bad_parameters(ROOT)), [])

    def test_structs(self):
        found = large_structs(ROOT)
        self.assert_debts(found, layout_debts.FIELDS)
        self.assertEqual({key: size for key, size in found.items() if size > layout_debts.FIELDS[key]}, {})

    def test_strategies(self):
        self.assert_debts(named_strategies(ROOT), layout_debts.STRATEGIES | layout_debts.OTHER_WORDS)

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


class CheckerCanFail(gwrun.Case):
    """The same checks on a small tree with faults."""

    def test_includes(self):
        self.write("src/base/agree.h", "#include <mpi.h>\n")
        self.write("src/base/err.h", "")
        self.write("src/nn/direct.c", "#include <mpi.h>\n")
        self.write("src/nn/indirect.c", '#include "base/agree.h"\n')
        self.write("src/nn/fine.c", '#include "base/err.h"\n#include <string.h>\n')
        self.write("comm/timed.c", '  #  include "prof/clock.h"\n')
        self.write("compress/bare.c", '#include "codec.h"\n')
        self.write("src/new/x.c", "")
        found = [line.split(":")[0] for line in bad_includes(self.dir, may_include(PAGE))]
        self.assertEqual(found, ["base/agree.h", "comm/timed.c", "compress/bare.c", "new/x.c",
                                 "nn/direct.c", "nn/indirect.c"])

    def test_clients(self):
        self.write("src/step/a.c", '#include "api/inside.h"\n#include <gradwire.h>\n#include "comm/lane.h"\n')
        self.write("src/train/b.h", '#include "run/session.h"\n')
        self.write("src/train/c.c", '  # include "api/handle.h"\n')
        self.write("src/predict/d.c", '#include "comm/algo.h"\n')
        self.write("src/step/e.c", '#include "config/f.h"\n')
        self.write("src/config/f.h", '#include "config/g.h"\n')
        self.write("src/config/g.h", '#include "run/session.h"\n')
        self.write("src/config/g.c", '#include "run/more.h"\n')
        self.write("src/api/inside.h", '#include "api/handle.h"\n')
        self.write("src/run/session.h", '#include "comm/lane.h"\n')
        self.assertEqual(sorted(bad_clients(self.dir)), [
            ("api/inside.h", "api/handle.h"), ("config/g.h", "run/session.h"), ("step/a.c", "comm/lane.h"),
            ("train/b.h", "run/session.h"), ("train/c.c", "api/handle.h")])

    def test_parameters(self):
        self.write("src/nn/a.h", "/** `of` it. */\nint a_f(int value, float x[3], void (*call)(int i));\nint a_g(int);\n")
        self.write("src/nn/a.c", "static int a_h(int one);\nint a_f(int value, float y[3], void (*tell)(int j)) {\n    a_h(x, 1);\n}\n"
                   "int a_g(int n) {\n}\nstatic int a_h(int other) {\n}\n")
        self.write("src/nn/b.c", "static int a_h(int third) {\n}\n")
        self.assertEqual(sorted(bad_parameters(self.dir)), [
            "nn/a.c: a_h: one is other where it is defined", "nn/a.h: a_f: call is tell where it is defined",
            "nn/a.h: a_f: x is y where it is defined"])

    def test_structs(self):
        members = "    int a, b; /* ; */\n    void (*f)(int x, int y);\n    struct {\n        int c, d;\n    } in[3];\n" + 20 * "    int e;\n"
        self.write("src/nn/a.h", f"typedef struct large {{\n{members}    int g, h;\n}} large;\n"
                   f"typedef struct {{\n{members}    float k[2][3], l;\n}} unnamed;\n"
                   f"struct small {{\n{members}    int g;\n}};\n")
        self.assertEqual(large_structs(self.dir), {("nn/a.h", "large"): 26, ("nn/a.h", "unnamed"): 26})

    def test_strategies(self):
        self.write("comm/strategies.def", "X(ring)\nX(star)\n")
        self.write("comm/strategy/ring.c", 'const char *name = "ring";\n')
        self.write("src/cli/a.c", '/* "ring" */ f("ring:algo=x"), f("rings"), f("a ring");\n')
        self.write("python/gradwire/b.py", '# "ring"\nNAMES = ("star", 1)\n')
        self.assertEqual(named_strategies(self.dir), {("src/cli/a.c", "ring"), ("python/gradwire/b.py", "star")})

    def test_calls(self):
        self.write("comm/fabric/mpi.c", "    GW_MPI(MPI_Isend_c(data, f->comm, r)); /* its own */\n")
        self.write("comm/sends.c", "e = gw_agree(lane->comm, e);\n    sched_yield();\n")
        self.write("comm/idle.c", "MPI_Comm comm; /* gw_queue_wait(q, s), as MPI_Wait */\n")
        self.write("src/mpi/wait.c", "MPI_Test(request);\n")
        page = "| `comm/fabric/mpi.c` | the fabric |\n| `comm/idle.c` | nothing |\n"
        self.assertEqual(sorted(bad_calls(page, self.dir)),
                         ["comm/idle.c: calls neither MPI nor a clock: docs/architecture.md need not list it",
                          "comm/sends.c: calls gw_agree, sched_yield, for which a lane has its fabric"])

    def test_drawing(self):
        page = "```\n{:38}the top\n{:38}below\n```\n| `a` | `b`, `c` |\n| `b` | |\n| `c` | |\n"
        self.assertEqual(list(bad_drawing(page.format("a", "b  c"))), [])
        self.assertEqual(list(bad_drawing(page.format("a  b", ""))),
                         ["a is drawn no higher than b, which it includes",
                          "a is drawn no higher than c, which it includes", "c is not drawn"])

    def test_ways(self):
        self.write("src/a.c", "int a_open(void) {\n    return a_read();\n}\n\nint a_close(void) {\n    a_open(ops->f());\n}\n")
        page = "\n### A way\n\nAt last: at most {} {}.\n\n1. `src/a.c`: `a_close` does.\n2. `src/a.c`: `{}`, by `{}`,\n"
        self.assertEqual(list(bad_ways(page.format(2, "files", "a_open", "g"), self.dir)), [])
        self.assertEqual(list(bad_ways(page.format(1, "files", "a_new", "g"), self.dir)),
                         ["A way: 2 files, at most 1", "A way: no a_new in src/a.c"])
        self.assertEqual(list(bad_ways(page.format(2, "frames", "a_open", "a_read"), self.dir)), [])
        self.assertEqual(list(bad_ways(page.format(2, "frames", "a_open", "f"), self.dir)), ["A way: a_open does not call f"])
        self.assertEqual(list(bad_ways(page.format(2, "frames", "a_read", "f"), self.dir)),
                         ["A way: a_close does not call a_read", "A way: a_read does not call f"])

    def test_circles(self):
        self.write("src/prof/a.h", '#include "prof/b.h"\n')
        self.write("src/prof/a.c", '#include "prof/a.h"\n#include "prof/a_parts.h"\n')
        self.write("src/prof/a_parts.h", "")
        self.write("src/prof/b.h", "")
        self.assertEqual(circles(included(self.dir)), set())
        self.write("src/prof/b.c", '#include "prof/c.h"\n')
        self.write("src/prof/c.c", '#include "prof/a.h"\n#include "prof/free.h"\n')
        self.write("src/prof/free.h", "")
        self.write("src/prof/user.c", '#include "prof/a.h"\n')
        self.write("src/nn/d.c", '#include "nn/d_parts.h"\n')
        self.write("src/nn/d_parts.h", '#include "nn/d.h"\n')
        self.assertEqual(circles(included(self.dir)), {"nn/d, nn/d_parts", "prof/a, prof/b, prof/c"})

    def built(self, **texts):
        """What `called` finds in these files of src/prof."""
        commands = []
        for name, text in texts.items():
            path = self.write(f"src/prof/{name}.c", text)
            words = [*gwrun.compiler(), "-o", f"{name}.o", "-c", path]
            gwrun.said(*words, cwd=self.dir)
            commands.append({"directory": self.dir, "file": path, "command": shlex.join(words)})
        self.write("compile_commands.json", commands)
        return called(self.dir, self.dir)

    def test_circles_of_calls(self):
        a = "void b(void); void MPI_One(void);\nvoid a(void);\nvoid a(void) { b(); MPI_One(); }\n"
        c = "void a(void); void MPI_One(void);\nvoid (*table[])(void) = {a};\nvoid MPI_One(void) { a(); }\n"
        calls = self.built(a=a, b="extern void (*table[])(void); void b(void);\nvoid b(void) { table[0](); }\n", c=c)
        self.assertEqual(calls, {"prof/a.c": {"prof/b.c"}, "prof/b.c": set(), "prof/c.c": {"prof/a.c"}})
        self.assertEqual(circles(calls), set())
        calls = self.built(a=a, b="void c(void); void b(void);\nvoid b(void) { c(); }\n", c=c + "void c(void);\nvoid c(void) {}\n")
        self.assertEqual(circles(calls), {"prof/a.c, prof/b.c, prof/c.c"})

    def test_lengths(self):
        self.assertEqual(list(too_long("a.c", (LONGEST_FILE + 1) * "\n")), [f"a.c: {LONGEST_FILE + 1} lines: more than {LONGEST_FILE}"])
        self.assertEqual(list(too_long("a.c", LONGEST_FILE * "\n")), [])
        self.assertEqual(list(too_long("a.h", "\n/* " + 95 * "x" + " */\n")),
                         ["a.h:2: a line of 101 columns: more than 100"])

    def test_registries(self):
        for def_file, folder, symbol in REGISTRIES:
            self.write(def_file, "X(good)\nX(good)\nX(missing)\n")
            self.write(f"{folder}/good.c", f"const {symbol}good = {{\n")
            self.write(f"{folder}/unlisted.c", f"const {symbol}unlisted = {{\n")
            self.write(f"{folder}/helper.c", "int help(void);\n")
        found = "\n".join(bad_registries(self.dir))
        for word in ("more than once", "X(missing), but", "no X(unlisted)"):
            self.assertEqual(found.count(word), len(REGISTRIES), found)
        self.assertNotIn("helper", found)
