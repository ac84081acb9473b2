"""Parts of the experiment runner: the testbed under it, what it says, what it writes for Slurm."""

import dataclasses
import io
import json
import os
import re
import shlex
import shutil
import sys
import unittest

import gwrun
from test_experiments import TRAIN, Study, Terminal, read
from test_testbed import LAUNCHER
from ablation import journal, launch, slurm
from ablation.design import Cell, Planned
from ablation.progress import Progress
from reporting import ends
from tool import BadInput


def cell(name, ranks=1, words=()):
    given = {"id": name, "ranks": ranks, "words": list(words), "places": {}, "environment": {}}
    return Cell(**{field.name: given.get(field.name) for field in dataclasses.fields(Cell)})


def some_runs(cells, blocks):
    return [Planned(c, 1, 1, block, f"b{block:02d}-s1/{c.id}")
            for block in range(blocks) for c in cells]


class OnTestbed(Study):
    def setUp(self):
        super().setUp()
        self.bed = launch.Launcher("mpiexec", self.build, self.out, self.dir).name
        os.environ["XDG_RUNTIME_DIR"] = self.dir
        self.write(f"""
claim: a test
ranks: 2
base: {TRAIN} --epochs 1
factors: {{rate: [none, 200mbit, 500mbit]}}
""")

    def spaces(self):
        """What is up of this study's testbed; others may come and go."""
        return [line for line in gwrun.said("ip", "netns", "list").splitlines() if self.bed in line]

    @unittest.skipUnless(LAUNCHER, "needs root, iproute2 and a launcher")
    def test_runs(self):
        gwrun.well(self.call())
        for folder, record in self.records().items():
            rate = record["levels"]["rate"]
            link = json.loads(read(os.path.join(self.out, folder, "run.json")))["link"]
            if rate == "none":
                self.assertEqual((record["launcher"], link), ("mpiexec", None))
            else:
                self.assertEqual(record["launcher"], "testbed")
                self.assertEqual(link["rate_bits_per_s"], int(rate[:3]) * 10**6)
        self.assertEqual(self.spaces(), [])
        gwrun.refusal(self.call("--launcher", "testbed", out=self.out + "2"), "rate=none")

    @unittest.skipUnless(LAUNCHER, "needs root, iproute2 and a launcher")
    def test_runs_at_one_time_have_links_of_their_own(self):
        gwrun.well(self.call("--only", "rate=*mbit", "--jobs", "2", "--oversubscribe"))
        beds = {}
        for folder, record in self.records().items():
            link = json.loads(read(os.path.join(self.out, folder, "run.json")))["link"]
            self.assertEqual(link["rate_bits_per_s"], int(record["levels"]["rate"][:3]) * 10**6)
            beds[record["levels"]["rate"]] = record["command"][record["command"].index("--name") + 1]
        self.assertEqual(set(beds.values()), {self.bed, f"{self.bed}-job1"})
        self.assertEqual(self.spaces(), [])

    @unittest.skipUnless(LAUNCHER, "needs root, iproute2 and a launcher")
    def test_interrupted(self):
        os.environ["FAKE"] = "hang"
        for ended in ("terminate", "kill"):
            runner = self.spawn("--resume", "--only", "rate=*mbit")
            self.assertNotEqual(self.spaces(), [])
            getattr(runner, ended)()
            runner.communicate(timeout=300)
        os.environ["FAKE"] = ""
        done = self.call("--resume")  # takes what the killed one has left
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.spaces(), [])
        self.assertEqual(self.ranks(), [])

    def test_without_tools(self):
        path = os.environ["PATH"]
        os.environ["PATH"] = self.path("bin")
        os.mkdir(os.environ["PATH"])
        for tool in ("bash", "sh", "ls", "basename", "ssh"):  # the last Open MPI's launcher looks for
            if found := shutil.which(tool, path=path):
                os.symlink(found, self.path("bin", tool))
        gwrun.refusal(self.call(), "iproute2")
        self.assertFalse(os.path.exists(self.out))


class Progressing(unittest.TestCase):
    def test_line(self):
        a, b, c = cell("a"), cell("b"), cell("c")
        runs = some_runs([a, b, c], 2)
        progress = Progress(6, 1, io.StringIO())
        self.assertEqual(progress.line(runs), "0/6: 0 done, 0 failed, 6 left")
        progress.ended(runs[0], "done", 10)
        progress.ended(runs[1], "diverged", 20)
        progress.ended(runs[2], "failed", 1000)  # tells nothing of how long a run takes
        self.assertEqual(progress.line(runs[3:]),  # 10 + 20 + their mean for c
                         "3/6: 1 done, 1 diverged, 1 failed, 3 left, about 45 s to go")
        progress.jobs = 2
        self.assertIn("about 22 s", progress.line(runs[3:]))
        self.assertEqual(progress.line([]), "3/6: 1 done, 1 diverged, 1 failed, 0 left")

    def test_terminal(self):
        terminal = Terminal()
        progress = Progress(1, 1, terminal)
        progress.show([], "x" * 500)
        progress.note("kept")
        progress.show([])
        lines = terminal.getvalue().split("\n")
        self.assertEqual(len(lines), 2)  # all but the note are written over
        self.assertTrue(all(part.count("x") < 500 for part in lines))
        plain = io.StringIO()
        Progress(1, 1, plain).show([], "event", ["one", "two"])
        self.assertEqual(plain.getvalue(),
                         "0/1: 0 done, 0 failed, 0 left: event; running one and 1 more\n")

    def test_guess(self):
        """It stands for a cell until one of its runs has ended."""
        a, b = cell("a"), cell("b")
        runs = some_runs([a, b], 2)
        progress = Progress(4, 1, io.StringIO())
        progress.announce(runs)
        progress.guesses["a"] = 100
        self.assertEqual(progress.expected(runs), 400)
        progress.ended(runs[0], "done", 10)
        self.assertEqual(progress.expected(runs[1:]), 30)
        progress.announce(runs[1:])
        self.assertEqual(progress.stream.getvalue().splitlines(), [
            "4 of 4 runs to do, of 2 cells: no estimate of the time before the first has ended",
            "3 of 4 runs to do, of 2 cells: about 30 s, by the runs that have ended"])


class Words(gwrun.Case):
    def test_last_words(self):
        said = ("gradwire: one\n\n" + "=" * 70 + "\n=   BAD TERMINATION OF ONE OF YOUR APPLICATION "
                "PROCESSES\n=   EXIT CODE: 9\n" + "=" * 70 + "\nYOUR APPLICATION TERMINATED WITH "
                "THE EXIT STRING: Killed (signal 9)\nThis typically refers to a problem with your "
                "application.\nPlease see the FAQ page for debugging suggestions\n")
        self.assertEqual(launch.last_words(said), "gradwire: one")
        trace = "==== backtrace (tid: 7) ====\n 0  /lib/libucs.so.0(ucs_error+0x2d) [0x7f]\n====\n"
        self.assertEqual(launch.last_words("[vm:7] no such process\n" + trace),
                         "[vm:7] no such process")
        self.assertEqual(launch.died_of(9, said), "SIGKILL")
        self.assertEqual(launch.died_of(-11, ""), "SIGSEGV")
        self.assertIsNone(launch.died_of(1, "gradwire: one"))
        self.assertEqual(len(launch.last_words("a\n" * 99).splitlines()), launch.MESSAGE_LINES)
        self.assertEqual(len(launch.last_words("a" * 9999)), launch.MESSAGE_LENGTH)

    def test_description(self):
        attempt = {**journal.new_attempt(), "status": 1, "interrupted": False,
                   "message": "gradwire: the reason\nand more"}
        record = {"attempts": [{**attempt, "message": "earlier"}, attempt,
                               {**attempt, "interrupted": True, "message": "later"}]}
        self.assertEqual(ends.described(record), "exit status 1, 2 attempts: gradwire: the reason")
        attempt.update(status=None, message="no such testbed")
        self.assertEqual(ends.described(record), "not started, 2 attempts: no such testbed")
        attempt["cause"] = "why"  # of the whole output, of which the message is the end
        self.assertEqual(ends.described(record), "not started, 2 attempts: why")

    def test_locks(self):
        """The tasks of an array share the folder, but no run of it; a runner has all to itself."""
        def task(place):
            return journal.Journal(self.dir).locked(range(place, place + 1))
        with task(0), task(1):
            for other in (task(1), journal.Journal(self.dir).locked()):
                with self.assertRaisesRegex(journal.BadInput, f"process {os.getpid()} on "):
                    other.__enter__()
        with journal.Journal(self.dir).locked():
            with self.assertRaises(journal.BadInput):
                task(0).__enter__()

    def test_json_is_whole_or_not_there(self):
        path = self.path("x.json")
        journal.write_json(path, {"a": 1})
        with self.assertRaises(TypeError):
            journal.write_json(path, {"a": object()})
        self.assertEqual(journal.read_json(path), {"a": 1})
        for text in ("", "{", "[]", "\xff"):
            with open(path, "w", encoding="latin-1") as file:
                file.write(text)
            self.assertIsNone(journal.read_json(path))


@dataclasses.dataclass
class Facts:
    name: str = "study"
    retries: int = 1
    timeout_s: float | None = None


class Slurm(gwrun.Case):
    def render(self, left, total, **facts):
        return slurm.render(Facts(**facts), left, total, ["run", "a b"], "array.sh", "/out", 4)

    def test_hostile_names(self):
        """They come through to the letter, and no comment, directive or word of them runs."""
        runs = list(enumerate(some_runs([cell("a")], 1)))
        for name in ("a b", "$(touch X)", "`touch X`", "it's", '"q"', "%A", "-n", "#x", "a;touch X", "\u00e9\\"):
            text = slurm.render(Facts(name=name), runs, 1, [sys.executable, "-c", "import sys; print(*sys.argv[1:])", name], name, f"/out/{name}", 1)
            done = gwrun.finished(["bash", "-c", text], env={"SLURM_ARRAY_TASK_ID": "0"}, cwd=self.dir)
            self.assertEqual((done.stdout, done.stderr), (f"{name} --only-run 0-0\n", ""))
            self.assertEqual(os.listdir(self.dir), [])
            output, = (line for line in text.splitlines() if "--output=" in line)
            self.assertEqual(shlex.split(output.removeprefix("#SBATCH "))[0],
                             f"--output=/out/{name.replace('%', '%%')}/slurm-%A-%a.txt")
            submit, = re.findall("`sbatch (.*)`, with", text)
            self.assertEqual(shlex.split(submit), [f"./{name}" if name[0] == "-" else name])
        for name in ("a\ntouch X", "a\rb", "\x1b[31m", "\x7f", "\x9b2J", "\0"):
            for words, file, out in ((["run", name], "f", "o"), (["run"], name, "o"), (["run"], "f", name)):
                with self.assertRaises(BadInput) as refused:
                    slurm.render(Facts(), runs, 1, words, file, out, 1)
                self.assertIn(f"'{ascii(name)[1:-1]}' contains a control character", str(refused.exception))

    def test_ranges(self):
        self.assertEqual(slurm.ranges([0, 1, 2, 5, 7, 8]), "0-2,5,7-8")
        self.assertEqual(slurm.clock(61), "00:02:00")
        self.assertEqual(slurm.clock(3600 * 30), "30:00:00")

    def test_many_runs_share_tasks(self):
        """Of 2,500 runs a task makes 3; of those that have something left, all are listed."""
        runs = list(enumerate(some_runs([cell("a", 4), cell("b", 2, ["--threads", "8"])], 1250)))
        text = self.render(runs[:2] + runs[7:], 2500)
        self.assertIn("#SBATCH --array=0,2-833%4\n", text)
        self.assertIn("#SBATCH --ntasks=16\n#SBATCH --cpus-per-task=1\n", text)
        self.assertNotIn("--time", text)
        shell = text.replace("exec run", "echo run")
        self.assertEqual(gwrun.said("bash", "-c", shell, env={"SLURM_ARRAY_TASK_ID": "833"}),
                         "run a b --only-run 2499-2501\n")

    def test_time(self):
        runs = list(enumerate(some_runs([cell("a")], 1)))
        self.assertIn("#SBATCH --time=00:23:00\n", self.render(runs, 1, timeout_s=600))
