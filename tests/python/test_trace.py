"""trace.json: `analysis/trace-check` accepts what a run writes, and finds what is broken on purpose."""

import collections
import json
import os
import pickle
import random

import gwrun

SMALL = ("--data", "synthetic:samples=600,features=64,classes=5,seed=1", "--layers", "48,32",
         "--epochs", 2, "--batch", 108)
RUNS = {
    "blocking": ("--comm", "allreduce"),
    "poll": ("--comm", "iallreduce:bucket=4K,progress=poll", "--update", "lazy"),
    "thread": ("--comm", "iallreduce:bucket=4K,progress=thread"),
    "encoded": ("--comm", "iallreduce:bucket=4K,progress=thread,algo=ring", "--compress",
                "qsgd:bits=8"),
}


def check(*words):
    return gwrun.script(os.path.join(gwrun.SOURCE, "analysis", "trace-check"), *words)


def load(out):
    return gwrun.read_json(out, "trace.json")


def text_of(trace):
    """As gradwire writes it: an event a line."""
    events = ",\n".join(map(json.dumps, trace["traceEvents"]))
    return f'{{"traceEvents":[\n{events}\n],"otherData":{json.dumps(trace["otherData"])}}}'


class Timeline:
    """One rank's events."""

    def __init__(self):
        self.slices = collections.defaultdict(list)  # category -> (start, end, name, args)
        self.pairs = []  # of an exchange: (start, end, args)


def timelines(out):
    """[Timeline] of a valid trace, in nanoseconds."""
    lines, begun = collections.defaultdict(Timeline), {}
    for event in load(out)["traceEvents"]:
        line, at = lines[event["pid"]], round(1000 * event.get("ts", 0))
        if event["ph"] == "X":
            line.slices[event["cat"]].append((at, at + round(1000 * event["dur"]), event["name"], event.get("args")))
        elif event["ph"] == "b":
            begun[event["pid"], event["id"]] = at, event["args"]
        elif event["ph"] == "e":
            start, args = begun.pop((event["pid"], event["id"]))
            line.pairs.append((start, at, args))
    return [lines[rank] for rank in sorted(lines)]


class Written(gwrun.Case):
    """What `gradwire train --trace` writes. trace-check, which Broken tests, holds it to the format and to
    batches.csv."""

    def exchanges(self, lines):
        """The same exchanges on all ranks; none is done before the last rank has arrived."""
        of = [{(a["lane"], a["schedule"], a["run"]): (start, end, a) for start, end, a in line.pairs} for line in lines]
        for line in lines:
            self.assertEqual(len(line.pairs), len(of[0]))
        for key, (_, _, args) in of[0].items():
            same = [ranks[key] for ranks in of]
            self.assertEqual({(a["bytes"], a.get("step")) for _, _, a in same},
                             {(args["bytes"], args.get("step"))})
            # One host, one clock: what is left is the error of two of its readings.
            self.assertGreater(min(end for _, end, _ in same) + 1000, max(start for start, _, _ in same))
        for line in lines:
            for _, _, _, args in line.slices["wait"]:
                self.assertIn((args["lane"], args["schedule"], args["run"]), of[0])

    def valid(self, ranks, out, *words):
        """The Timelines of a run, whose trace is valid; and what trace-check says."""
        gwrun.train(ranks, out, *words, "--trace")
        said = gwrun.quiet(check(os.path.join(out, "trace.json")))
        self.assertIn(f"valid: {ranks} rank", said)
        return timelines(out), said

    def each(self, name):
        """(ranks, Timelines) of such runs."""
        for ranks in (1, 2, 3):
            with self.subTest(ranks=ranks):
                lines, said = self.valid(ranks, self.new(), *SMALL, *RUNS[name])
                self.assertIn(f"sums equal {10 * ranks} rows", said)
                for line in lines:
                    self.assertEqual(len(line.slices["between"]), 2)
                    self.assertEqual(bool(line.slices["codec"]), name == "encoded" and ranks > 1)
                self.exchanges(lines)
                yield ranks, lines

    def test_blocking(self):
        for _, lines in self.each("blocking"):
            for line in lines:
                self.assertEqual(len(line.slices["wait"]), 10)  # each blocks

    def test_overlapped(self):
        for name in ("poll", "thread"):
            self.assertEqual(len(list(self.each(name))), 3)

    def test_encoded(self):
        for ranks, lines in self.each("encoded"):
            if ranks > 1:  # what the progress thread decodes is seen, and counted nowhere
                self.assertTrue(any(line.slices["aside"] for line in lines))

    def test_pipeline(self):
        """The actions of each stage in the timetable's order, and what was waited for by dimension."""
        lines, said = self.valid(4, self.path("mesh"), *SMALL, "--mesh", "pipe=2,tensor=2", "--timetable", "zb",
                                 "--microbatches", 3, "--recompute", "on", "--stages", "2,1")
        self.assertIn("sums equal 40 rows", said)
        for rank, line in enumerate(lines):
            steps = [[] for _ in line.slices["batch"]]
            for start, end, name, args in line.slices["action"]:
                at = [i for i, batch in enumerate(line.slices["batch"])
                      if batch[0] <= start and end <= batch[1]]
                self.assertEqual((args["chunk"], len(at)), (0, 1))
                steps[at[0]].append(name)
            expected = "F0 F1 B0 F2 B1 B2" if rank < 2 else "F0 I0 F1 I1 W0 F2 I2 W1 W2"
            self.assertEqual({" ".join(step) for step in steps}, {expected})
            wide = {args["dimension"] for _, _, args in line.pairs}
            self.assertEqual(wide, {"data", "pipe", "tensor"})
            self.assertLessEqual({args["dimension"] for _, _, _, args in line.slices["wait"]}, wide)

    def test_full_rings(self):
        """The end of a run that outgrows the trace: whole batches with correct sums."""
        out = self.path("long")
        _, said = self.valid(1, out, "--data", "synthetic:samples=64,features=4,classes=2,seed=1", "--layers", "",
                             "--batch", 8, "--epochs", 4000, "--steps", 24000)
        other = load(out)["otherData"]
        self.assertGreater(other["dropped_slices"][0], 1000)
        self.assertEqual(other["room_slices"], 200000)
        self.assertRegex(said, r"\(steps [0-9]{4,}-24000\)")


class Broken(gwrun.Shared):
    """A valid trace, damaged: trace-check must find it."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.out = cls.path("run")
        gwrun.train(2, cls.out, *SMALL, "--comm", "iallreduce:bucket=4K,algo=ring", "--compress",
                    "qsgd:bits=8", "--steps", 6, "--trace")
        cls.whole = load(cls.out)
        cls.bytes = pickle.dumps(cls.whole)
        cls.table = os.path.join(cls.out, "batches.csv")

    def copied(self):
        return pickle.loads(self.bytes)  # deepcopy() takes ten times as long

    def damaged(self, trace, table=None):
        path = self.path("broken.json")
        gwrun.write(path, text_of(trace))
        return check(path, "--batches", table or self.table)

    def found(self, what, change, also=None):
        """`change` gets a copy of the trace and the events of rank 1 that match `also`."""
        trace = self.copied()
        events = trace["traceEvents"]
        change(events, [e for e in events if e["pid"] == 1 and (also is None or also(e))])
        done = self.damaged(trace)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertEqual(done.stderr, "")
        self.assertIn("FAULTY", done.stdout)
        faults = done.stdout.splitlines()[1:]
        self.assertTrue(any(what in fault for fault in faults), faults)

    def test_whole(self):
        gwrun.well(self.damaged(self.whole))

    def test_times(self):
        def phase(e):
            return e.get("cat") == "phase" and e["dur"] > 1

        def swap(_, of):
            of[5]["ts"], of[6]["ts"] = of[6]["ts"], of[5]["ts"]
        self.found("later", swap, phase)
        for what, at, key, change in (
                ("does not begin where", 20, "dur", lambda old: old + 0.001),
                ("does not begin where", 20, "dur", lambda old: old - 0.001),
                ("negative", 3, "dur", lambda _: -1), ("duration", 3, "dur", lambda _: 1e300),
                ("no time", 3, "ts", lambda _: -0.5), ("no time", 3, "ts", lambda old: old + 0.0005)):
            self.found(what, lambda _, of: of[at].update({key: change(of[at][key])}), phase)

    def test_slices(self):
        def outlive(_, of):
            of[4]["dur"] = of[5]["ts"] + 1 - of[4]["ts"]
        self.found("after the slice in which it began", outlive,
                   lambda e: e.get("cat") == "batch")
        self.found("phases reach to", lambda _, of: of[4].update(dur=of[4]["dur"] + 0.001),
                   lambda e: e.get("cat") == "batch")
        self.found("follows on step", lambda _, of: of[4]["args"].update(step=9),
                   lambda e: e.get("cat") == "batch")
        self.found("no number", lambda _, of: of[4].pop("args"),
                   lambda e: e.get("cat") == "batch")
        self.found("does not begin", lambda events, of: events.remove(of[7]),
                   lambda e: e.get("cat") == "phase" and e["dur"] > 0)
        self.found("is not a phase", lambda _, of: of[7].update(name="sleep"),
                   lambda e: e.get("cat") == "phase")
        self.found("codec slices", lambda events, of: events.remove(of[1]),
                   lambda e: e.get("cat") == "codec" and e["dur"] > 0)

    def test_actions(self):
        """Three of them laid into the first batch of rank 1, then damaged."""
        def actions(change):
            def lay(events, of):
                tid = of[0]["tid"] + 50
                name = {"ph": "M", "name": "thread_name", "pid": 1, "tid": tid, "args": {"name": "pipeline"}}
                acts = [{"ph": "X", "pid": 1, "tid": tid, "ts": of[0]["ts"] + i * 0.002, "dur": 0.001,
                         "cat": "action", "name": f"{letter}0", "args": {"chunk": 0, "microbatch": 0}}
                        for i, letter in enumerate("FIW")]
                change(acts, of)
                events.insert(next(i for i, e in enumerate(events) if e["pid"] == 1) + 1, name)
                events.extend(acts)
                events.sort(key=lambda e: (e["pid"], e["ph"] != "M", e.get("ts", 0)))
            return lay

        def batch(e):
            return e.get("cat") == "batch"
        trace = self.copied()
        actions(lambda acts, of: None)(trace["traceEvents"], [
            e for e in trace["traceEvents"] if e["pid"] == 1 and batch(e)])
        gwrun.well(self.damaged(trace))
        self.found("is no F, B, I or W", actions(lambda acts, of: acts[1].update(name="I1")), batch)
        self.found("is no F, B, I or W", actions(lambda acts, of: acts[1].pop("args")), batch)
        self.found("comes twice", actions(lambda acts, of: acts[1].update(name="F0")), batch)
        self.found("before the one before it ends",
                   actions(lambda acts, of: acts[0].update(dur=0.003)), batch)
        self.found("lies in no batch", actions(lambda acts, of: acts[2].update(
            ts=of[1]["ts"] - 0.002, dur=of[1]["dur"] + 0.004)), batch)

    def test_processes_and_threads(self):
        def phase(e):
            return e.get("cat") == "phase"
        self.found("has no name", lambda _, of: of[9].update(pid=0), phase)
        self.found("has no name", lambda _, of: of[9].update(pid=7), phase)
        self.found("has no name", lambda _, of: of[9].update(tid=1), phase)
        self.found("does not begin", lambda _, of: of[9].update(tid=of[9]["tid"] + 1), phase)
        self.found("has no name", lambda events, of: events.remove(of[0]),
                   lambda e: e["name"] == "process_name")
        self.found("has no name", lambda events, of: events.remove(of[0]),
                   lambda e: e["name"] == "thread_name")
        self.found("is named 'rank 0'", lambda _, of: of[0]["args"].update(name="rank 0"),
                   lambda e: e["name"] == "process_name")
        self.found("no process", lambda _, of: of[9].pop("pid"), phase)
        self.found("kind", lambda _, of: of[9].update(ph="Q"), phase)
        self.found("kind", lambda _, of: of[9].pop("ph"), phase)

    def test_exchanges(self):
        def lost(index):
            """Takes one event and every counter: the counters would disagree from there on, in
            more lines than the check prints."""
            def change(events, of):
                gone = of[index]
                events[:] = [e for e in events if e is not gone and e["ph"] != "C"]
            return change
        self.found("has no end", lost(-1), lambda e: e["ph"] == "e")
        self.found("begins again", lost(0), lambda e: e["ph"] == "e")
        self.found("without having begun", lost(3), lambda e: e["ph"] == "b")
        self.found("without having begun", lambda _, of: of[3].update(id="0x7"),
                   lambda e: e["ph"] == "e")
        self.found("without having begun", lambda _, of: of[3].update(name="other"),
                   lambda e: e["ph"] == "e")
        self.found("lacks its name", lambda _, of: of[3].pop("id"), lambda e: e["ph"] == "b")

    def test_counters(self):
        def inflight(e):
            return e["ph"] == "C" and e["name"] == "exchanges"
        self.found("exchanges are in flight", lambda _, of: of[8]["args"].update({"in flight": 9}),
                   inflight)
        self.found("not a number", lambda _, of: of[8]["args"].update({"in flight": "1"}), inflight)
        self.found("lacks", lambda _, of: of[8].pop("args"), inflight)
        self.found("counter wire", lambda _, of: of[4]["args"].update(bytes=1),
                   lambda e: e["ph"] == "C" and e["name"] == "wire")

    def test_sums(self):
        """What only the table can tell."""
        self.found("backward slices", lambda _, of: of[8].update(name="backward"),
                   lambda e: e.get("cat") == "phase" and e["name"] == "forward")
        self.found("in flight for", lambda events, of: [events.remove(e) for e in of],
                   lambda e: e.get("cat") == "requests")

    def test_table(self):
        rows, path = gwrun.rows(self.table), self.path("changed.csv")
        for what, column in (("the batch takes", "wall_s"), ("the batch begins", "t_start_s"),
                             ("mpi_wait slices", "mpi_wait_s"), ("in flight for", "inflight_s"),
                             ("counter wire", "wire_bytes"), ("no row", None)):
            gwrun.write_rows(path, rows[:6] + [{**rows[6], column: 3}] * bool(column) + rows[7:])
            done = self.damaged(self.whole, path)
            self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
            self.assertIn(what, done.stdout)

    def test_not_a_trace(self):
        """Exit status 2 and one line."""
        path = self.path("not.json")
        trace = self.copied()
        del trace["otherData"]["format"]
        whole = text_of(self.whole)
        for old, new, said in (
                (whole, "", "line 1: does not begin"), (whole, "\0" * 99, "line 1: does not begin"),
                (whole, json.dumps(self.whole), "line 1: does not begin"),
                (whole, text_of(trace), "otherData is not gradwire's"),
                (whole, '{"traceEvents":[\n],"otherData":[]}', "otherData is not gradwire's"),
                (whole, whole + "{", "Extra data"), (whole, whole[:-1], "delimiter"),
                (whole, whole[:900], "line"), (',\n', "\n", "line 3: ',' is missing"),
                ("\n]", ",\n]", "Expecting value"), ('],"other', '],"traceEvents":[],"other', "twice"),
                ("[\n{", "[\n1,\n{", "line 2: an event is not an object"),
                ("[\n{", '[\n{"ph":"X",', "line 2: a key comes twice"),
                ('"pid": 0', '"pid": NaN', "NaN is not JSON"),
                ('"pid": 0', f'"pid": 1{0:0400}', "401 digits"),
                ('"pid": 0', f'"pid": {"[" * 99999}', "recursion")):
            with self.subTest(said=said):
                gwrun.write(path, whole.replace(old, new, 1))
                self.refused(said, path)
        gwrun.write(path, whole.encode()[:99] + b"\xff")
        self.refused("not UTF-8", path)
        os.mkfifo(self.path("pipe"))
        right = os.path.join(self.out, "trace.json")
        self.refused("not a regular file", self.path("pipe"))
        self.refused("No such file", "/nonexistent/trace.json")
        self.refused("required: FILE")
        self.refused("--batches belongs to one trace, not to 2", right, right, "--batches", path)
        self.refused("no column rank", right, "--batches", right)

    def refused(self, said, *words):
        gwrun.refusal(check(*words), said)

    def test_noise(self):
        """With any bytes, it ends with one of its exit statuses."""
        head, table = gwrun.read_bytes(self.out, "trace.json")[:6000], gwrun.read_bytes(self.table)[:1500]
        draw = random.Random(5)
        path = self.path("noise")
        for turn in range(60):
            bad = {"json": bytearray(head), "csv": bytearray(table)}
            for _ in range(draw.randint(1, 8)):
                text = bad["json" if turn % 3 else "csv"]
                at = draw.randrange(len(text))
                if draw.random() < 0.3:
                    del text[at:at + draw.randint(1, 40)]
                else:
                    text[at] = draw.choice(b'{}[]",:0-9eE.\\\n\0\xff\x80X')
            if turn % 2 or turn % 3 == 0:  # else it breaks off in an event
                end = bad["json"].rfind(b"},\n")
                tail = json.dumps(self.whole["otherData"]).encode()
                bad["json"][end + 1:] = b'],"otherData":' + tail + b"}"
            for kind, text in bad.items():
                gwrun.write(f"{path}.{kind}", text)
            done = check(f"{path}.json", "--batches", f"{path}.csv")
            self.assertIn(done.returncode, (0, 1, 2), done)
            self.assertEqual(done.stderr.count("\n"), done.returncode == 2, done)
