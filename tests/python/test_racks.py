"""Bytes over the uplinks of racks: which rank is in which, and what the analysis makes of a run's matrix."""

import os

import gwrun
from reportcase import TASK, ReportCase, call

from reporting import claims, judge, kept, page, perrun, racks, runs, shape, summary

LINK = {"GRADWIRE_TESTBED": "4", "GRADWIRE_LINK_RATE": "1000000000", "GRADWIRE_RACKS": "2x200000000x1"}


def info_of(count, hosts, each, ranks, nodes):
    return {"link": {"hosts": hosts, "racks": {"count": count, "ranks_per_host": each}},
            "machine": {"ranks": ranks, "nodes": nodes}, "results": {"steps": 1}}


def matrix(*rows):
    return b"\n".join([racks.TITLES, *(f"{rank},{peer},data,1,{size},{source}".encode()
                                       for rank, peer, size, source in rows)]) + b"\n"


class Placement(gwrun.Case):
    def test_racks_of_ranks(self):
        for facts, expected in (
                ((2, 4, 1, 4, 4), [0, 0, 1, 1]), ((4, 4, 1, 4, 4), [0, 1, 2, 3]), ((2, 4, 1, 1, 1), [0]),
                ((2, 4, 1, 3, 3), [0, 0, 1]), ((2, 4, 1, 6, 4), [0, 0, 1, 1, 0, 0]),
                ((2, 4, 2, 4, 2), [0, 0, 0, 0]), ((2, 4, 2, 9, 4), [0, 0, 0, 0, 1, 1, 1, 1, 0]),
                ((3, 6, 3, 7, 3), [0, 0, 0, 0, 0, 0, 1]),
                # On other nodes than those in turn; no testbed could be like this.
                ((2, 4, 1, 4, 1), None), ((3, 4, 1, 4, 4), None), ((0, 4, 1, 4, 4), None), ((2, 4, None, 4, 4), None)):
            with self.subTest(facts=facts):
                self.assertEqual(racks.of_ranks(info_of(*facts)), expected)
        for link in (None, {"hosts": 4}, {"hosts": 4, "racks": None}, {"hosts": 4, "racks": "2"}):
            self.assertIsNone(racks.of_ranks({**info_of(2, 4, 1, 4, 4), "link": link}))

    def test_bytes_across(self):
        measured = matrix((0, 1, 5, "measured"), (0, 2, 7, "measured"), (1, 3, 11, "measured"),
                          (3, 0, 13, "measured"), (3, 2, 17, "measured"))
        self.assertEqual(racks.bytes_across(measured, [0, 0, 1, 1]), 31)
        self.assertEqual(racks.bytes_across(measured, [0, 1, 2, 3]), 53)
        self.assertEqual(racks.bytes_across(measured, [0, 0, 0, 0]), 0)
        self.assertEqual(racks.bytes_across(matrix(), [0]), 0)
        called = matrix((0, 1, 5, "measured"), (0, "", 7, "modelled"))
        self.assertIsNone(racks.bytes_across(called, [0, 1]))  # not told, never a guess
        self.assertEqual(racks.bytes_across(called, [0, 0]), 0)

    def test_damaged(self):
        whole = matrix((0, 1, 5, "measured"))
        for text in (b"", b"rank,peer\n", whole + b"0,2,data,1,5,measured\n", whole + b"2,0,data,1,5,measured\n",
                     whole + b"0,1,data,1,-5,measured\n", whole + b"0,1,data,1\n", whole + b"0,1,data,1,nan,measured\n",
                     whole + b"0,1,data,1,5,measured,6\n", whole + b",1,data,1,5,measured\n"):
            with self.subTest(text=text), self.assertRaisesRegex(shape.Bad, "^matrix.csv"):
                racks.bytes_across(text, [0, 1])


class OfRuns(ReportCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for algo in ("ring", "sra", "native"):
            gwrun.ok(4, "train", "--quiet", *TASK, "--steps", "21", "--comm", f"allreduce:algo={algo}", "--out",
                     os.path.join(cls.real, f"racks-{algo}"), env=dict(os.environ, **LINK))

    def placed(self, name, **link):
        """A run as on 4 hosts, which it was not."""
        folder = self.copy(name, f"racks-{name}")
        gwrun.change(folder, lambda run: (run["machine"].update(nodes=4), run["link"].update(link)))
        return folder

    def by_hand(self, folder):
        rows = [row for row in gwrun.rows(folder, "matrix.csv") if row["peer"]]
        return sum(int(row["bytes"]) for row in rows if (row["rank"] in "01") != (row["peer"] in "01")) / 4 / 21

    def test_run_json(self):
        link = gwrun.run_json(self.copy("a", "racks-ring"))["link"]
        self.assertEqual(link["racks"], {"count": 2, "uplink_bits_per_s": 200000000, "ranks_per_host": 1})
        self.assertIsNone(racks.uplink_bytes(self.path("a"), gwrun.run_json(self.path("a"))))  # all on one node

    def test_uplink_bytes(self):
        """Of a ring, whose two links between racks each carry 2 (P - 1) / P of the gradient."""
        ring, sra = self.placed("ring"), self.placed("sra")
        run = gwrun.run_json(ring)
        wire = 4 * run["parameters"] * 1.5
        self.assertAlmostEqual(racks.uplink_bytes(ring, run), 2 * wire / 4, delta=64)
        for folder in (ring, sra):
            self.assertAlmostEqual(racks.uplink_bytes(folder, gwrun.run_json(folder)), self.by_hand(folder), 6)
        self.assertIsNone(racks.uplink_bytes(self.placed("native"), gwrun.run_json(self.path("native"))))
        gwrun.change(ring, lambda run: run.update(resumed={"step": 14, "from_ranks": 4, "dropped": []}))
        self.assertAlmostEqual(racks.uplink_bytes(ring, gwrun.run_json(ring)), 3 * self.by_hand(ring), 6)
        os.unlink(os.path.join(ring, "matrix.csv"))
        self.assertIsNone(racks.uplink_bytes(ring, gwrun.run_json(ring)))

    def test_where_it_is_shown(self):
        self.copy("plain")
        for name in ("ring", "sra", "native"):
            self.placed(name)
        across = {name: self.by_hand(self.path(name)) for name in ("ring", "sra")}
        both = runs.read_results(self.dir)
        by_name = {run.folder: run for one in both for run in one.runs}
        found, = (one for one in both if by_name["ring"] in one.runs)  # over another link than `plain`
        self.assertEqual({name: by_name[name].means.get("uplink_bytes") for name in by_name},
                         {"plain": None, "native": None, **across})
        self.assertIn("racks 2 racks with uplinks of 200mbit", found.name)
        self.assertEqual(page.link_of(by_name["ring"].info), "emulated, 1gbit, 2 racks with uplinks of 200mbit")
        rows = {row["folder"]: row for row in perrun.of_all(both)}
        self.assertEqual(rows["ring"]["mean.uplink_bytes"], across["ring"])
        self.assertNotIn("mean.uplink_bytes", rows["plain"])
        self.assertEqual([row["mean.uplink_bytes"] for row in kept.compact([rows["ring"]], judge.MEANS)],
                         [float(f"{across['ring']:.7g}")])
        rows = {row["level.comm"]: row for row in summary.rows_of(found)}
        self.assertEqual(rows["allreduce:algo=sra"]["uplink_bytes"], across["sra"])
        self.assertEqual(judge.column_of(by_name["sra"], "uplink_bytes"), across["sra"])
        self.assertEqual(claims.parts_of("uplink_bytes / wire_bytes"), ["uplink_bytes", "wire_bytes"])
        self.assertFalse(claims.is_of_time("uplink_bytes"))

    def test_tools(self):
        ring, native, plain = self.placed("ring"), self.placed("native"), self.copy("plain")
        across = self.by_hand(ring)
        lines = gwrun.quiet(call("table", ring, native, plain)).splitlines()
        at = lines[2].index("uplink") + len("uplink")  # below what tells this table from that of `plain`
        self.assertEqual([line[:at].rsplit(" ", 1)[-1] for line in lines[5:7]], [f"{across:,.0f}", ""])
        self.assertTrue(any(line.startswith("uplink: of wire") for line in lines))
        self.assertNotIn("uplink", gwrun.quiet(call("table", plain)))
        self.assertRegex(gwrun.run(0, "show", ring, env=dict(os.environ, LC_ALL="C")).stdout,
                         rf"(?s)4 hosts at 1000 Mbit/s in 2 racks with uplinks of 200 Mbit/s.*to other racks +{across:.0f}\n")
        gwrun.write(os.path.join(ring, "matrix.csv"), "rank,peer\n")
        gwrun.refusal(call("table", ring), "matrix.csv, line 1")
