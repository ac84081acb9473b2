"""What must hold between the figures of any run, of any strategy, on any number of ranks.

`test` is a unittest.TestCase, `out` a run folder. Printed digits are 11; a clock that two ranks
calibrated runs some ppm differently in each."""

import csv
import json
import os

import gwrun

PHASES = ("data", "forward", "backward", "recompute", "update", "encode", "decode", "mpi_post",
          "mpi_poll", "mpi_wait", "checkpoint", "other")
DIMENSIONS = ("data", "pipe", "tensor")
PRINTED = 1e-9  # relative: what eleven digits and their sums may lose
JSON = 1e-8     # relative: run.json has nine
RATES = 1e-4    # relative: of two calibrations, ten times what they differ


def number(text):
    return float(text) if text != "" else None


def rows_of(out, name):
    with open(os.path.join(out, name), newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def run_of(out):
    with open(os.path.join(out, "run.json"), encoding="utf-8") as file:
        return json.load(file)


def by_rank(rows):
    ranks = {}
    for row in rows:
        ranks.setdefault(int(row["rank"]), []).append(row)
    return [ranks[rank] for rank in sorted(ranks)]


def seconds(row, name):
    return float(row[name + "_s"])


def between(row):
    """Of a batch that blocks in one exchange: the time outside the phases before it and outside it."""
    return seconds(row, "wall") - sum(seconds(row, name) for name in
                                      ("data", "forward", "backward", "mpi_wait"))


def leaves(test, out, blocking):
    """Leaves sum to the wall; blocking: nothing in flight."""
    rows = gwrun.batches(out)
    for row in rows:
        wall = seconds(row, "wall")
        parts = sum(seconds(row, phase) for phase in PHASES)
        test.assertAlmostEqual(parts, wall, delta=1e-3 * wall)
        if blocking:
            test.assertEqual(seconds(row, "inflight"), 0)


def gaps(test, out):
    """Batches follow each other on the common clock; with the gaps between them they make up the
    run."""
    results = run_of(out)["results"]
    ranks = by_rank(gwrun.batches(out))
    for rank, rows in enumerate(ranks):
        gap = 0
        for before, after in zip(rows, rows[1:]):
            between = (seconds(after, "t_start") - seconds(before, "t_start")
                       - seconds(before, "wall"))
            slack = RATES * seconds(before, "wall") + float(before["clock_err_s"] or 0) + 1e-9
            test.assertGreater(between, -slack)
            gap += between
        wall = sum(seconds(r, "wall") for r in rows)
        whole = seconds(rows[-1], "t_start") + seconds(rows[-1], "wall") - seconds(rows[0], "t_start")
        test.assertAlmostEqual(wall + gap, whole, delta=RATES * whole)
        if rank == 0:  # whose figure that is: another may begin before it
            test.assertLess(whole, results["elapsed_s"] * (1 + RATES))
    wall = sum(seconds(r, "wall") for r in ranks[0])
    test.assertAlmostEqual(wall, results["train_s"], delta=JSON * wall)


def waits(test, out):
    """Waiting and transfer add up to mpi_wait in every row; the clock error is stated."""
    rows = gwrun.batches(out)
    ranks = len(by_rank(rows))
    for row in rows:
        wait, skew, transfer = (seconds(row, n) for n in ("mpi_wait", "wait_skew", "transfer"))
        test.assertGreaterEqual(skew, 0)
        test.assertGreaterEqual(transfer, -PRINTED * wait)
        test.assertAlmostEqual(skew + transfer, wait, delta=PRINTED * wait)
        if ranks == 1:
            test.assertEqual((skew, row["clock_err_s"]), (0, ""))
        else:
            error = float(row["clock_err_s"])
            test.assertGreater(error, 0)
            test.assertTrue(skew == 0 or skew > error, row)
    test.assertEqual(run_of(out)["results"]["exchanges_dropped"], 0)


def exchanges(out):
    """Rows of collectives.csv, with the ranks of one exchange together."""
    groups = {}
    for row in rows_of(out, "collectives.csv"):
        groups.setdefault((row["lane"], row["schedule"], row["run"]), []).append(row)
    return groups


def collectives(test, out, ranks):
    """The last rank to arrive waited least, and less than the clock error; nobody waited longer than
    the skew; arrival, block and end follow each other."""
    errors = {r["step"]: float(r["clock_err_s"]) for r in gwrun.batches(out)}
    groups = exchanges(out)
    test.assertGreater(len(groups), 0)
    for key, rows in groups.items():
        test.assertEqual(sorted(int(r["rank"]) for r in rows), list(range(ranks)), key)
        error = errors[rows[0]["step"]]
        start = [seconds(r, "start") for r in rows]
        waiting = [seconds(r, "waiting") for r in rows]
        skew = max(start) - min(start)
        test.assertLessEqual(min(waiting), error, key)
        # A figure is an instant of hundreds of seconds at most, in eleven digits.
        digits = 1e-9 * max(start) + 1e-9
        for row, wait in zip(rows, waiting):
            test.assertAlmostEqual(seconds(row, "skew"), skew, delta=2 * digits, msg=key)
            test.assertLessEqual(wait, skew * (1 + RATES) + 2 * digits, key)
            test.assertLessEqual(seconds(row, "start"), seconds(row, "done") + digits, key)
            if row["block_s"]:
                test.assertLessEqual(seconds(row, "block"), seconds(row, "unblock") + digits)
            if row["last_rank"]:
                last = [r for r in rows if r["rank"] == row["last_rank"]][0]
                test.assertAlmostEqual(seconds(last, "start"), max(start), delta=digits, msg=key)
                test.assertEqual(seconds(last, "waiting"), 0, key)
                test.assertGreater(skew, error - 2 * digits, key)


def waits_are_the_exchanges(test, out):
    """Blocking: what a row waited is what its exchanges waited."""
    waited = {}
    for row in rows_of(out, "collectives.csv"):
        key = row["rank"], row["step"]
        waited[key] = waited.get(key, 0) + seconds(row, "waiting")
    for row in gwrun.batches(out):
        test.assertAlmostEqual(seconds(row, "wait_skew"),
                               waited.get((row["rank"], row["step"]), 0), delta=1e-9)


def traffic(test, out):
    """The matrix and the modelled bytes equal what was handed to MPI, rank by rank. Settling at the end
    of an epoch counts for the run, not for a batch."""
    total, sent = 0, {}
    for row in rows_of(out, "matrix.csv"):
        test.assertNotEqual(row["rank"], row["peer"])
        test.assertEqual(row["source"], "measured" if row["peer"] else "modelled")
        sent[row["rank"]] = sent.get(row["rank"], 0) + int(row["bytes"])
        total += int(row["bytes"])
    results = run_of(out)["results"]
    test.assertEqual(total, results["wire_bytes"])
    test.assertEqual(results["traffic"]["message_bytes"] + results["traffic"]["collective_bytes"],
                     total)
    for rank, rows in enumerate(by_rank(gwrun.batches(out))):
        test.assertLessEqual(sum(int(r["wire_bytes"]) for r in rows), sent.get(str(rank), 0))
    return sent
