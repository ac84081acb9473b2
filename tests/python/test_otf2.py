"""gradwire export --otf2: the archive, read back by OTF2's own reader, has what trace.json or batches.csv has."""

import collections
import os
import sys
import unittest

import gwrun
from test_trace import SMALL, load

try:
    import _otf2
    import otf2
except ImportError:
    otf2 = None

EXPORT = os.path.join(gwrun.SOURCE, "analysis", "export")
PHASES = ("data", "forward", "backward", "recompute", "update", "encode", "decode", "mpi_post", "mpi_poll", "mpi_wait",
          "checkpoint", "other")


def export(*words):
    return gwrun.script(EXPORT, *words)


def attributes_of(event):
    return {key.name: value for key, value in (event.attributes or {}).items()}


class Read:
    """What the archive has: [(begin, end, region, attributes)] of each (rank, location), in the order of the begins,
    [(begin, end, bytes)] of each rank's allreduces, [(time, bytes)] of its metric, and the properties."""

    def __init__(self, folder):
        self.slices, self.reduced, self.wire = (collections.defaultdict(list) for _ in range(3))
        opened, requests = collections.defaultdict(list), {}
        with otf2.reader.open(os.path.join(folder, "traces.otf2")) as trace:
            self.properties = {name.removeprefix("GRADWIRE::"): _otf2.Reader_GetProperty(trace._handle, name)
                               for name in _otf2.Reader_GetPropertyNames(trace._handle)}
            self.root = trace.definitions.system_tree_nodes[0].name
            self.resolution = trace.timer_resolution
            self.nodes = [node.name for node in trace.definitions.system_tree_nodes if node.class_name == "node"]
            for location, event in trace.events:
                rank, kind = int(location.group.name.removeprefix("rank ")), type(event).__name__
                place = rank, location.name
                if kind == "Enter":
                    opened[place].append(len(self.slices[place]))
                    self.slices[place].append([event.time, None, event.region.name, attributes_of(event)])
                elif kind == "Leave":
                    of = self.slices[place][opened[place].pop()]
                    assert of[2] == event.region.name, (of, event.region.name)
                    of[1] = event.time
                elif kind == "NonBlockingCollectiveRequest":
                    requests[rank, event.request_id] = event.time
                elif kind == "NonBlockingCollectiveComplete":
                    assert (event.collective_op, event.communicator.name) == (otf2.CollectiveOp.ALLREDUCE, "all ranks")
                    self.reduced[rank].append((requests.pop((rank, event.request_id)), event.time, event.size_sent))
                else:
                    assert kind == "Metric", kind
                    self.wire[rank].append((event.time, event.value))
        assert not requests and not any(opened.values())


def expected(out):
    """The same of a trace.json, by its definition (test_trace.py): names of threads, slices, exchanges."""
    slices, wire, pairs = (collections.defaultdict(list) for _ in range(3))
    names, begun = {}, {}
    for event in load(out)["traceEvents"]:
        rank, at, args = event["pid"], round(1000 * event.get("ts", 0)), event.get("args", {})
        told = {key: args[key] for key in ("step", "bytes", "run", "dimension", "microbatch", "chunk") if key in args}
        if event["ph"] == "M" and event["name"] == "thread_name":
            names[rank, event["tid"]] = args["name"]
        elif event["ph"] == "X" and event["cat"] != "codec":
            name = "batch" if event["cat"] == "batch" else event["name"]
            slices[rank, names[rank, event["tid"]]].append([at, at + round(1000 * event["dur"]), name, told])
        elif event["ph"] == "b":
            begun[rank, event["id"]] = [at, None, event["name"], told], args
        elif event["ph"] == "e":
            one, args = begun.pop((rank, event["id"]))
            one[1] = at
            slices[rank, f"exchange, lane {args['lane']}, schedule {args['schedule']}"].append(one)
            pairs[rank].append((one[0], at, args["bytes"]))
        elif event["ph"] == "C" and event["name"] == "wire":
            wire[rank].append((at, args["bytes"]))
    return slices, pairs, wire


@unittest.skipIf(otf2 is None, "this interpreter cannot import otf2 (Debian's python3-otf2)")
class Otf2(gwrun.Case):
    def archive(self, source, *more):
        folder = self.new()
        said = gwrun.quiet(export(self.out, "--otf2", folder))
        self.assertRegex(said, rf"^export: {folder}/traces.otf2: of {source}: .*[0-9]+ batch")
        self.assertEqual([name for name in os.listdir(os.path.dirname(folder))], [os.path.basename(folder)])
        read = Read(folder)
        self.assertEqual((read.properties["SOURCE"], read.resolution), (source, 10**9))
        return read

    def test_a_trace(self):
        """Every slice, exchange and counter of it, to the nanosecond."""
        for ranks, reduces, words in (
                (2, True, ("--comm", "iallreduce:bucket=4K,progress=thread,algo=ring", "--compress", "qsgd:bits=8")),
                (3, False, ("--comm", "gossip")),
                (4, False, ("--mesh", "pipe=2,tensor=2", "--timetable", "zb", "--microbatches", 3))):
            with self.subTest(words=words):
                self.out = self.new()
                gwrun.train(ranks, self.out, *SMALL, *words, "--steps", 6, "--trace")
                slices, pairs, wire = expected(self.out)
                read = self.archive("trace.json")
                self.assertEqual(set(read.slices), set(slices))
                for place, of in slices.items():
                    self.assertEqual(sorted(read.slices[place], key=str), sorted(of, key=str), place)
                self.assertEqual(dict(read.wire), dict(wire))
                self.assertTrue(pairs[0])
                self.assertEqual({rank: sorted(of) for rank, of in read.reduced.items()},
                                 {rank: sorted(of) for rank, of in pairs.items()} if reduces else {})
                self.assertEqual(read.nodes, sorted(set(gwrun.run_json(self.out)["machine"]["hosts"])))
                self.assertEqual((read.properties["DROPPED"], read.properties["PHASES"]), ("0", "as they happened"))

    def test_without_a_trace(self):
        """Phases are the rows' sums, one after another, and the archive says so."""
        gwrun.train(2, self.out, *SMALL, "--steps", 6)
        read = self.archive("batches.csv")
        self.assertIn("one after another", read.properties["PHASES"])
        self.assertEqual((read.root, read.properties["MARKS"]), ("gradwire run", "none"))
        self.assertIn("--trace", read.properties["EXCHANGES"])
        rows = gwrun.batches(self.out)
        self.assertEqual({place for place in read.slices}, {(0, "computation"), (1, "computation")})
        for rank in (0, 1):
            mine = [row for row in rows if int(row["rank"]) == rank]
            slices = read.slices[rank, "computation"]
            batches = [one for one in slices if one[2] == "batch"]
            self.assertEqual([one[3] for one in batches], [{"step": int(row["step"])} for row in mine])
            self.assertEqual([value for _, value in read.wire[rank]], [int(row["wire_bytes"]) for row in mine])
            for (begin, end, *_), row in zip(batches, mine):
                self.assertLessEqual(abs(begin - 1e9 * float(row["t_start_s"])), 2)
                self.assertLessEqual(abs(end - begin - 1e9 * float(row["wall_s"])), 1)
                within = [one for one in slices if one[2] != "batch" and begin <= one[0] and one[1] <= end]
                for phase in PHASES:
                    took = sum(stop - start for start, stop, name, _ in within if name == phase)
                    self.assertLessEqual(abs(took - 1e9 * float(row[phase + "_s"])), 2, phase)

    def test_what_no_rank_ran_is_marked(self):
        gwrun.ok(0, "simulate", "--ranks", 3, "--link", "1gbit", "--bytes", "4K", "--out", self.out)
        read = self.archive("batches.csv")
        self.assertEqual(read.root, "gradwire run, simulated")
        self.assertIn("simulated: no rank ran", read.properties["MARKS"])

    def test_refusals(self):
        gwrun.train(1, self.out, *SMALL, "--steps", 2, "--profile", "off")
        read = self.archive("batches.csv")  # nothing is known but the batches
        self.assertEqual([name for _, _, name, _ in read.slices[0, "computation"]], ["batch"] * 2)
        table = os.path.join(self.out, "batches.csv")
        gwrun.write_rows(table, [{**row, "t_start_s": ""} for row in gwrun.rows(table)])
        gwrun.refusal(export(self.out, "--otf2", self.path("new")), "batches.csv, line 2", "no t_start_s")
        gwrun.refusal(export(self.out, "--otf2", self.dir), "exists")
        gwrun.refusal(export(self.path("nowhere"), "--otf2", self.path("new")), "run.json")
        gwrun.refusal(export(self.out, "--otf2", self.path("no", "where")), "No such file")
        for more in (["--compact"], ["--out", self.path("all.csv")], [self.dir]):
            gwrun.refusal(export(self.out, *more, "--otf2", self.path("new")), "--otf2 is of one run")
        gwrun.write(os.path.join(self.out, "trace.json"), '{"traceEvents":[\n')
        gwrun.refusal(export(self.out, "--otf2", self.path("new")), "the end is missing")
        self.assertFalse(os.path.lexists(self.path("new")) or os.path.lexists(self.path("new.new")))


class Without(gwrun.Case):
    def test_the_package_is_named(self):
        """By an interpreter whose otf2 cannot be imported."""
        self.write("otf2.py", "raise ImportError('not here')\n")
        done = gwrun.finished([sys.executable, "-B", EXPORT, self.dir, "--otf2", self.path("new")],
                              env={**os.environ, "PYTHONPATH": self.dir})
        gwrun.refusal(done, "OTF2 takes the module otf2", "not here", "python3-otf2")
