"""POP's efficiencies: made-up ranks with known ones, identities on real runs, and what leaves them blank."""

import csv
import json
import math
import os
import re

import gwrun
from reportcase import ReportCase, call
from reporting import pop

BLANK = dict.fromkeys(pop.NAMES)


def shown(out):
    """What show --json has of them."""
    done = gwrun.run(0, "show", "--json", out)
    return json.loads(gwrun.quiet(done))["runs"][0]["pop"]


class Pop(ReportCase):
    def clean(self, name, strategy="allreduce"):
        """A copy of a real run that no other load has marked."""
        out = self.copy(name, strategy)

        def unmark(run):
            run["machine"]["oversubscribed"] = False
            run["results"]["summary"]["interrupted"] = 0
        gwrun.change(out, unmark)
        return out

    def ranks(self, out, *ranks):
        """Gives a run these ranks: (wall, outside MPI, waiting) in ms."""
        def put(run):
            run["machine"]["ranks"] = len(ranks)
            run["results"]["ranks"] = [
                {**run["results"]["ranks"][0], "rank": i, "wall_s": wall * 1e-3, "own_s": own * 1e-3,
                 "waiting_s": None if waiting is None else waiting * 1e-3}
                for i, (wall, own, waiting) in enumerate(ranks)]
        gwrun.change(out, put)

    def test_known_values(self):
        out = self.clean("known")
        for ranks, parallel, balance, serial, transfer in (
                # All alike, and no communication.
                ([(10, 10, 0)] * 4, 1, 1, 1, 1),
                # One has all the work, the others wait for it: balance alone is to blame.
                ([(10, 10, 0), (10, 2, 8)], 0.6, 0.6, 1, 1),
                # The same work, and 2 of 10 ms on the wire: transfer alone.
                ([(10, 8, 0), (10, 8, 0)], 0.8, 1, 1, 0.8),
                # Each waits for the other in turn, so that an infinitely fast network would not help: serialisation.
                ([(10, 5, 5), (10, 5, 5)], 0.5, 1, 0.5, 1),
                # All three at once: 0.5 = 0.75 x 0.8 x (5/6).
                ([(12, 8, 2), (12, 4, 3)], 0.5, 0.75, 0.8, 10 / 12)):
            self.ranks(out, *ranks)
            found = shown(out)
            for name, value in (("parallel", parallel), ("load_balance", balance), ("serialisation", serial),
                                ("transfer", transfer), ("communication", serial * transfer)):
                self.assertAlmostEqual(found[name], value, 12, (ranks, name))
            self.assertIsNone(found["why_blank"])
        self.assertIn("POP: parallel efficiency 50.0% = load balance 75.0% x communication 66.7% (serialisation 80.0% x "
                      "transfer 83.3%)", gwrun.quiet(gwrun.run(0, "show", out)))

    def test_identities_of_real_runs(self):
        for strategy in ("allreduce", "iallreduce"):
            out = self.clean(strategy, strategy)
            found = shown(out)
            self.assertIsNone(found["why_blank"])
            self.assertAlmostEqual(found["parallel"], found["load_balance"] * found["communication"], 12)
            self.assertAlmostEqual(found["communication"], found["serialisation"] * found["transfer"], 12)
            self.assertTrue(all(0 < found[name] <= 1 for name in pop.NAMES), found)
            ranks = gwrun.run_json(out)["results"]["ranks"]
            self.assertAlmostEqual(found["parallel"] * max(rank["wall_s"] for rank in ranks),
                                   sum(rank["own_s"] for rank in ranks) / len(ranks), 12)
            # Outside MPI is all that the rows do not give to MPI.
            rows = [row for row in gwrun.batches(out) if int(row["step"]) > 10]
            for rank, told in enumerate(ranks):
                mine = [float(row["wall_s"]) - sum(float(row[f"mpi_{part}_s"]) for part in ("post", "poll", "wait"))
                        for row in rows if int(row["rank"]) == rank]
                self.assertAlmostEqual(told["own_s"] / (sum(mine) / len(mine)), 1, 6)

    def test_blank(self):
        """What each lacks, in words; a figure that is not known is blank, never 0."""
        out, whole = self.clean("blank"), self.path("blank", "run.json")
        text = gwrun.read(whole)
        for why, change in (
                ("one rank", lambda run: run["machine"].update(ranks=1)),
                ("oversubscribed", lambda run: run["machine"].update(oversubscribed=True)),
                ("busy", lambda run: run["machine"].update(busy={"during": {"warned": True, "text": "others"}})),
                ("interrupted", lambda run: run["results"]["summary"].update(interrupted=0.5)),
                ("simulated", lambda run: run.update(simulated={"engine": "x"})),
                ("each rank", lambda run: run["results"].update(ranks=None)),
                ("each rank", lambda run: run["results"]["ranks"][1].pop("own_s"))):
            gwrun.change(out, change)
            found, said = pop.efficiencies(gwrun.run_json(out), out)
            self.assertTrue(all(map(math.isnan, found.values())), why)
            self.assertIn(why, said)
            gwrun.write(whole, text)
        gwrun.change(out, lambda run: run["results"].update(ranks=None))
        self.assertEqual({name: value for name, value in shown(out).items() if name != "why_blank"}, BLANK)
        self.assertRegex(gwrun.quiet(gwrun.run(0, "show", out)), "POP: parallel efficiency absent; no figures")

    def test_clocks(self):
        """Balance needs no common clock; what tells waiting from transfer does."""
        out = self.clean("clocks")
        table, rows = os.path.join(out, "batches.csv"), gwrun.batches(out)
        for error, blank in (("1e-12", False), ("1", True), ("", True)):
            gwrun.write_rows(table, [{**row, "clock_err_s": error} for row in rows])
            found = shown(out)
            self.assertEqual([found[name] is None for name in pop.NAMES], [False] * 3 + [blank] * 2)
            self.assertEqual(found["why_blank"] is None, not blank)
        gwrun.write_rows(table, rows)
        gwrun.change(out, lambda run: run["results"]["ranks"][0].update(waiting_s=None))
        self.assertIn("waiting is not known", shown(out)["why_blank"])

    def test_report_and_export(self):
        out, page = self.clean("study/run"), self.path("page.html")
        self.ranks(out, (12, 8, 2), (12, 4, 3))
        gwrun.well(call("report", self.path("study"), "--out", page, draws=[]))
        cells = re.sub("<[^>]*>", "|", gwrun.read(page).partition("<summary>Efficiencies")[2])
        self.assertRegex(cells.partition("Efficiencies are POP")[0], r"\|50\|.*\|75\|.*\|66\.6*7\|.*\|80\|.*\|83\.3*\|")
        row = next(csv.DictReader(gwrun.quiet(call("export", self.path("study"))).splitlines()))
        self.assertAlmostEqual(float(row["mean.pop_parallel"]), 0.5)
