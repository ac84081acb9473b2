"""How a run ended is told alike by all tools, with its cause; and what run folders hold commands no terminal,
whatever the locale."""

import os
import pty
import re
import shutil
import subprocess
import sys
import unittest

import gwrun
from reportcase import ANALYSIS, ReportCase, call

from reporting import ends, runs, sidebyside
import tool
from ablation import progress

BANNER = ("=" * 70 + "\n=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n=   EXIT CODE: 1\n" + "=" * 70
          + "\nYOUR APPLICATION TERMINATED WITH THE EXIT STRING: Hangup (signal 1)\n")
TRACEBACK = ("Traceback (most recent call last):\n  File \"x.py\", line 1, in <module>\n    go()\n"
             "ValueError: no such file\n")


class Cause(unittest.TestCase):
    def test_of_an_output(self):
        own = "gradwire: rank 1: out of memory"
        for text, cause in (
                (f"step 1\n{own}\ngradwire: rank 0: rank 1 has gone\nbye\n{BANNER}", own),
                (f"[1] {own}\nmpiexec: rank 1 exited with status 1\n", f"[1] {own}"),
                (f"gradwire: stopped by SIGTERM after step 3\n{own}\n", own),
                ("gradwire: stopped by SIGTERM after step 3\nmore\n", "gradwire: stopped by SIGTERM after step 3"),
                (f"gradwire: rank 2:   layer 3\n{own}\n", own),  # a detail of what another rank says
                (TRACEBACK + TRACEBACK.replace("such", "other") + "mpiexec exited\n", "ValueError: no such file"),
                (f"{TRACEBACK}{own}\n", own),
                ("one\ntwo\nmpiexec: it failed\n", "two"), ("mpiexec: no such host\n", "mpiexec: no such host"),
                (BANNER, ""), ("", ""), ("\033[31mred\033[0m\n", "?[31mred?[0m")):
            with self.subTest(text=text):
                self.assertEqual(ends.cause_of(text), cause)
        self.assertEqual(len(ends.cause_of("x" * 999)), ends.LONGEST)


class Ends(ReportCase):
    STATES = ("failed", "diverged", "interrupted", "running")
    COUNTED = "3 done, 1 diverged, 1 failed, 1 interrupted, 1 unfinished, 1 not run"

    def ended(self):
        """A study of eight runs, of which three are done."""
        folder = self.study(blocks=4)
        text = f"gradwire: rank 0: no memory\n{BANNER}bye\n"
        for block, state in enumerate(self.STATES):
            run = f"demo/b{block:02d}-s1/comm=iallreduce"
            os.unlink(self.path(run, "run.json"))
            self.record(run, state=state, attempts=[
                {"started_utc": "", "seconds": 1, "status": 1, "signal": None, "timed_out": False, "message": text,
                 "interrupted": state == "interrupted" or None if state == "running" else False}])
        shutil.rmtree(os.path.join(folder, "b03-s1", "comm=allreduce"))
        return folder

    def test_all_tools_count_and_name_them_alike(self):
        folder = self.ended()
        found, = runs.read_results(folder)
        self.assertEqual(ends.counted(found.counts), self.COUNTED)
        self.assertEqual(call("report", folder, draws=[]).returncode, 0)
        page = gwrun.read(folder, "report.html")
        first = page[:page.index('class="answer"')]  # above the first table
        self.assertIn(f"Runs: {self.COUNTED}, of 8 planned.", first)
        self.assertIn("failed: exit status 1: gradwire: rank 0: no memory", first)
        for name in ("table", "show"):
            said = gwrun.quiet(gwrun.finished([os.path.join(ANALYSIS, name), folder]))
            self.assertEqual(said.splitlines()[0], f"runs: {self.COUNTED}")
            self.assertIn("failed: exit status 1: gradwire: rank 0: no memory\n", said)
        done = call("compare", folder, folder)
        self.assertEqual([line for line in done.stdout.splitlines()[:4] if ":" in line][1:],
                         [f"{side}: {self.COUNTED}" for side in "AB"])
        self.assertIn("comm=iallreduce: failed: exit status 1: gradwire: rank 0: no memory", done.stdout)
        states = [line.split(",")[2] for line in call("export", folder).stdout.splitlines()[1:]]
        self.assertEqual(ends.counted({state: states.count(state) for state in states}), self.COUNTED)
        self.assertEqual(len(sidebyside.troubles(found)), 5)
        shown = progress.Progress(8, 1).summary(folder, found.counts)  # the runner's last line
        self.assertTrue(shown.startswith(f"8 runs: {self.COUNTED}; "), shown)

    def test_nothing_but_lost_runs(self):
        folder = self.ended()
        for block in range(3):
            shutil.rmtree(os.path.join(folder, f"b{block:02d}-s1", "comm=allreduce"))
        for name in ("table", "show"):
            done = gwrun.finished([os.path.join(ANALYSIS, name), folder])
            self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (2, "", 1), done.stderr)
            self.assertIn("no finished run: 0 done, 1 diverged, 1 failed, 1 interrupted, 1 unfinished, 4 not run: ",
                          done.stderr)

    def test_a_run_that_a_signal_ended(self):
        folder = self.copy("alone")
        gwrun.change(folder, lambda info: info["results"].update(stopped_by="SIGTERM"))
        os.unlink(os.path.join(self.copy("torn"), "run.json"))
        found, = runs.read_results(self.dir)
        self.assertEqual(ends.counted(found.counts), "0 done, 1 interrupted, 1 unfinished")
        for name, words in (("table", "alone (interrupted)"), ("show", "INTERRUPTED by SIGTERM")):
            done = gwrun.finished([os.path.join(ANALYSIS, name), folder])
            self.assertIn(words, done.stdout)
            self.assertIn("runs: 0 done, 1 interrupted\n", done.stdout)


class Terminal(ReportCase):
    def hostile(self):
        """A folder of runs whose names and texts command terminals."""
        evil = "\033]0;owned\a\x9b31m\u202ex\r"
        for name in ("a\033[2Jb", "c\x9b1m"):
            folder = self.copy(name)

            def spoil(value):
                return {key: spoil(one) if isinstance(one, (dict, list)) else one + evil if isinstance(one, str)
                        and key not in ("statistic", "stopped_by", "started_utc") else one
                        for key, one in value.items()} if isinstance(value, dict) else [
                            spoil(one) if isinstance(one, (dict, list)) else one for one in value]
            gwrun.write(os.path.join(folder, "run.json"), spoil(gwrun.run_json(folder)))
        self.copy("good")

    def test_nothing_in_a_folder_commands_it(self):
        self.hostile()
        for words in (["table", self.dir], ["table", "--all", self.path("a\033[2Jb")], ["show", self.dir],
                      ["show", self.path("a\033[2Jb")], ["report", self.dir], ["compare", self.dir, self.dir],
                      ["export", self.dir]):
            with self.subTest(words=words):
                read, write = pty.openpty()
                done = subprocess.Popen([sys.executable, os.path.join(ANALYSIS, words[0]), *words[1:]], stdout=write,
                                        stderr=subprocess.STDOUT, env={**os.environ, "NO_COLOR": "", "TERM": "xterm"})
                os.close(write)
                text = b""
                try:
                    while part := os.read(read, 1 << 16):
                        text += part
                except OSError:  # the last writer has gone
                    pass
                os.close(read)
                done.wait(timeout=300)
                said = re.sub("\033\\[\\d{1,2}m", "", text.decode().replace("\r\n", "\n"))  # show's own colours
                self.assertGreater(len(said), 20)
                self.assertEqual(tool.CONTROL.findall(said.replace("\n", "")), [])

    def test_own_colours_alone_remain(self):
        for colours, text in ((True, "\033[31mred\033[0m?[2J"), (False, "?[31mred?[0m?[2J")):
            done = subprocess.run(
                [sys.executable, "-c", f"import sys; sys.path.insert(0, {ANALYSIS!r}); import tool; "
                 f"tool.say('\\033[31mred\\033[0m\\033[2J', {colours})"], capture_output=True, text=True, check=True)
            self.assertEqual(done.stdout, text + "\n")

    def test_every_tool_under_every_locale(self):
        """A locale that is not installed, and one without letters, are no errors; what they lack is escaped."""
        self.copy("caf\u00e9-\u4e2d")
        tools = [os.path.join(ANALYSIS, name) for name in ("table", "show", "report", "compare", "export", "claims",
                                                           "trace-check")]
        tools += [os.path.join(gwrun.SOURCE, "experiments", name) for name in ("run", "supervise", "testbed")]
        for name in ("xx_YY.UTF-8", "C"):
            env = {**os.environ, "LC_ALL": name}
            for path in tools if name != "C" else tools[:2]:
                folders = {"compare": [self.dir] * 2, "claims": ["--help"], "trace-check": ["--help"],
                           "run": ["--help"], "supervise": ["--help"], "testbed": ["--help"]}.get(
                               os.path.basename(path), [self.dir])
                with self.subTest(locale=name, tool=os.path.basename(path)):
                    done = subprocess.run([sys.executable, path, *folders], capture_output=True, env=env, check=False)
                    self.assertEqual((done.returncode, done.stderr), (0, b""))
                    self.assertTrue(done.stdout)
