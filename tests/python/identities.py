"""What must hold between the figures of any run, of any strategy, on any number of ranks.

`test` is a unittest.TestCase, `out` a run folder. Printed digits are 11; a clock that two ranks
calibrated runs some ppm differently in each."""


import gwrun

PHASES = ("data", "forward", "backward", "recompute", "update", "encode", "decode", "mpi_post",
          "mpi_poll", "mpi_wait", "checkpoint", "other")
DIMENSIONS = ("data", "pipe", "tensor")
PRINTED = 1e-9  # relative: what eleven digits and their sums may lose
JSON = 1e-8     # relative: run.json has nine
RATES = 1e-4    # relative: of two calibrations, ten times what they differ


def number(text):
    return float(text) if text != "" else None


def mesh_bytes(sizes, micro, batch, widths, layers):
    """{dimension: (bytes, messages)} that all ranks together send in a step, by the formulas of
    docs/parallel.md, with MPI's own allreduce and --tensor-split pairs. The halves of the loss go round
    a ring. `layers`: of each stage."""
    data, _, tensor = sizes
    odd = [l % 2 == 1 for l in range(len(widths) - 1)]  # cut by rows; the others by columns
    sums = sum(out for rows, out in zip(odd, widths[1:]) if rows) + \
        sum(inner for l, (rows, inner) in enumerate(zip(odd, widths)) if not rows and l)
    joins = 0 if odd[-1] else tensor * (tensor - 1)
    ends = [sum(layers[:i + 1]) for i in range(len(layers) - 1)]
    hops = sum(8 * batch * widths[end] * (tensor if odd[end - 1] else 1) for end in ends)
    parameters = sum((a + 1) * b for a, b in zip(widths, widths[1:]))
    return {"data": (8 * (data - 1) * parameters, 0),
            "pipe": (hops, 2 * micro * data * tensor * len(ends)),
            "tensor": (8 * (tensor - 1) * batch * sums + 16 * joins * batch, joins * data * micro)}


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


def outside(row, exchange):
    """The same to the instant: mpi_wait begins a little before the exchange does, and a rank may be interrupted
    there. `exchange`: its row of collectives.csv."""
    return seconds(row, "wall") - sum(seconds(row, name) for name in ("data", "forward", "backward")) - \
        (seconds(exchange, "unblock") - seconds(exchange, "block"))


def leaves(test, out, blocking):
    """Leaves sum to the wall; blocking: nothing in flight."""
    rows = gwrun.batches(out)
    for row in rows:
        wall = seconds(row, "wall")
        parts = sum(seconds(row, phase) for phase in PHASES)
        test.assertAlmostEqual(parts, wall, delta=1e-8 * wall)
        if blocking:
            test.assertEqual(seconds(row, "inflight"), 0)


def gaps(test, out):
    """Batches follow each other on the common clock; with the gaps between them they make up the
    run."""
    results = gwrun.run_json(out)["results"]
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
    test.assertEqual(gwrun.run_json(out)["results"]["exchanges_dropped"], 0)


def exchanges(out):
    """Rows of collectives.csv, with the ranks of one exchange together."""
    groups = {}
    for row in gwrun.rows(out, "collectives.csv"):
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
    for row in gwrun.rows(out, "collectives.csv"):
        key = row["rank"], row["step"]
        waited[key] = waited.get(key, 0) + seconds(row, "waiting")
    for row in gwrun.batches(out):
        test.assertAlmostEqual(seconds(row, "wait_skew"),
                               waited.get((row["rank"], row["step"]), 0), delta=1e-9)


def traffic(test, out):
    """The matrix and the modelled bytes equal what was handed to MPI, rank by rank. Settling at the end
    of an epoch counts for the run, not for a batch."""
    total, sent = 0, {}
    for row in gwrun.rows(out, "matrix.csv"):
        test.assertNotEqual(row["rank"], row["peer"])
        test.assertEqual(row["source"], "measured" if row["peer"] else "modelled")
        sent[row["rank"]] = sent.get(row["rank"], 0) + int(row["bytes"])
        total += int(row["bytes"])
    results = gwrun.run_json(out)["results"]
    test.assertEqual(total, results["wire_bytes"])
    test.assertEqual(results["traffic"]["message_bytes"] + results["traffic"]["collective_bytes"],
                     total)
    for rank, rows in enumerate(by_rank(gwrun.batches(out))):
        test.assertLessEqual(sum(int(r["wire_bytes"]) for r in rows), sent.get(str(rank), 0))
    return sent


def mean(some, column):
    """Over steps, of the mean over ranks: each step has as many rows."""
    return sum(float(row[column]) for rows in some for row in rows) / sum(map(len, some))


def blocks_of(out, period):
    """The blocks of the definition, from batches.csv: lists of steps, each a list of its rows."""
    steps = {}
    for row in gwrun.batches(out):
        steps.setdefault(int(row["step"]), []).append(row)
    steps = [steps[step] for step in sorted(steps)][10 * (len(steps) > 20):]
    periods = [steps[at:at + period] for at in range(0, len(steps) - period + 1, period)]
    count = min(40, len(periods))
    return [sum(periods[b * len(periods) // count:(b + 1) * len(periods) // count], [])
            for b in range(count)]


def kept(blocks, trims=True):
    """The steps of the middle half of them."""
    cut = len(blocks) // 4 * trims
    return [rows for block in sorted(blocks, key=lambda block: mean(block, "wall_s"))[cut:len(blocks) - cut]
            for rows in block]


def defined(out, period, trims=True):
    """(the steps that count, {column: its mean}) as the definition has them."""
    steps = kept(blocks_of(out, period), trims)
    return steps, {column: mean(steps, column) for column in ("wall_s", "wire_bytes", *(f"{phase}_s" for phase in PHASES))}


def dimensions(test, out):
    """Of a mesh: figures by dimension add up to those for all; run.json has their means, matrix.csv their
    bytes and messages; a dimension of one rank has none."""
    rows, run = gwrun.batches(out), gwrun.run_json(out)
    sums = {}
    for row in rows:
        for whole, part in ((sum(seconds(row, p) for p in PHASES[5:10]), "comm_s"),
                            (seconds(row, "wait_skew"), "skew_s")):
            test.assertAlmostEqual(sum(float(row[f"{dim}_{part}"]) for dim in DIMENSIONS), whole,
                                   delta=PRINTED * whole)
        for whole, part in (("wire_bytes", "bytes"), ("messages", "messages")):
            test.assertEqual(sum(int(row[f"{dim}_{part}"]) for dim in DIMENSIONS), int(row[whole]))
        for dim in DIMENSIONS:
            for what in ("bytes", "messages"):
                key = row["rank"], dim, what
                sums[key] = sums.get(key, 0) + int(row[f"{dim}_{what}"])
    sent = dict.fromkeys(sums, 0)
    for row in gwrun.rows(out, "matrix.csv"):
        for what in ("bytes", "messages") if row["peer"] else ("bytes",):
            sent[row["rank"], row["dimension"], what] += int(row[what])
    test.assertEqual(sums, sent)
    summary = run["results"]["summary"]
    counted, _ = defined(out, summary["period"], summary["statistic"] == "steady mean")
    for dim, figures in summary["dimensions"].items():
        test.assertEqual(figures["ranks"], run["mesh"][dim])
        for what in ("bytes", "messages"):
            total = sum(n for (_, of, kind), n in sums.items() if (of, kind) == (dim, what))
            test.assertAlmostEqual(figures[what], mean(counted, f"{dim}_{what}"), delta=JSON * total)
            test.assertTrue(figures["ranks"] > 1 or total == 0, (dim, total))
    together = {what: sum(summary["dimensions"][dim][what] for dim in DIMENSIONS)
                for what in ("comm_s", "waiting_s")}
    phases = sum(summary["phases"][f"{phase}_s"] for phase in PHASES[5:10])
    test.assertAlmostEqual(together["comm_s"], phases, delta=JSON * phases)
    test.assertAlmostEqual(together["waiting_s"], summary["waiting_s"], delta=JSON * phases)


def bubble(test, out):
    """What a stage waits along the pipe, measured and simulated; null where there is one stage."""
    run = gwrun.run_json(out)
    summary, simulated = run["results"]["summary"], run["results"]["simulated"]
    if run["mesh"]["pipe"] == 1:
        test.assertEqual((summary["bubble_s"], summary["bubble_share"], simulated), (None,) * 3)
        return
    test.assertEqual(summary["bubble_s"], summary["dimensions"]["pipe"]["waiting_s"])
    test.assertAlmostEqual(summary["bubble_share"] * summary["wall_s"], summary["bubble_s"],
                           delta=JSON * summary["wall_s"])
    test.assertEqual([(at["stage"], at["chunk"]) for at in simulated["runs"]],
                     [(stage, chunk) for chunk in range(run["mesh"]["chunks"])
                      for stage in range(run["mesh"]["pipe"])])
    micro, stages = run["mesh"]["microbatches"], run["mesh"]["pipe"]
    busy = sum(at["forward_s"] + (at["backward_s"] if at["input_s"] is None else
                                  at["input_s"] + at["weights_s"]) for at in simulated["runs"])
    step = simulated["step_s"]
    test.assertAlmostEqual(simulated["idle_s"], step - micro * busy / stages, delta=JSON * step)
    test.assertLessEqual(simulated["bubble_s"], simulated["idle_s"] * (1 + JSON))
    test.assertAlmostEqual(simulated["bubble_share"] * step, simulated["bubble_s"], delta=JSON * step)
