"""Figures of the documentation out of experiments/results: tables, and numbers within a line, between

  <!-- of STUDY: WHAT -->NUMBER<!-- end -->

| WHAT | NUMBER |
|---|---|
| claim TEXT | the figure of that claim and its interval, of claims.csv |
| found VERDICT | `5 of 6`: how many of the study's claims have that verdict |
| ratio of COLUMN of LEVELS against LEVELS | that of two cells; the second as for points |
| time to target of CONFIGURATION, bytes .. | what it spends over what its baseline does, of target.csv |
| points of LEVELS against LEVELS | by how many points of accuracy the second, with the first's levels otherwise, is above the first |
| range of COLUMN, .. in COLUMN | from the least to the greatest share of the cells, in percent |
| COLUMN of LEVELS | that figure of a cell, of summary.csv; an accuracy with its interval, in percent |
| ms of LEVELS | its step time in milliseconds |
| made | the date and the machine |

LEVELS are those of a spec, FACTOR=LEVEL,..; what they leave out is the baseline's. ValueError: there is no such figure.
"""

import csv
import os
import re
import statistics
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.append(os.path.join(ROOT, "analysis"))

from reporting import claims
from reporting.expect import levels_of

INLINE = re.compile(r"(<!-- of (\w+): ([^>]+?) -->)(.*?)(<!-- end -->)", re.DOTALL)


def rows(root, study, name):
    path = os.path.join(root, "experiments", "results", study, f"{name}.csv")
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def percent(text):
    return f"{100 * float(text):.2f}"


def accuracy(row):
    """Its median over the seeds and the interval of that; without a spread there is none."""
    ends = [percent(row[f"test_accuracy_{end}"]) if row[f"test_accuracy_{end}"] else None for end in ("low", "high")]
    alone = None in ends or ends[0] == ends[1]
    return percent(row["test_accuracy"]) + ("" if alone else f" ({ends[0]}..{ends[1]})")


class Study:
    """A kept study's summary.csv."""

    def __init__(self, root, name):
        self.rows = rows(root, name, "summary")
        names = [key.removeprefix("level.") for key in self.rows[0] if key.startswith("level.")]
        self.factors = {name: list(dict.fromkeys(row[f"level.{name}"] for row in self.rows)) for name in names}
        self.baseline = next(row for row in self.rows if row["baseline"] == "1")

    def cell(self, text, other=None):
        """The row of these levels; `other`: the one that it has the others' levels of, or the baseline's."""
        levels = levels_of(text, self.factors)
        if levels is None:
            raise ValueError(f"'{text}' are no levels of {', '.join(self.factors)}")
        wanted = {f"level.{name}": levels.get(name, (other or self.baseline)[f"level.{name}"]) for name in self.factors}
        for row in self.rows:
            if wanted.items() <= row.items():
                return row
        raise ValueError(f"'{text}' is no cell")

    def range(self, columns, whole):
        shares = [100 * float(row[column]) / float(row[whole]) for row in self.rows for column in columns if row[column]]
        return f"{claims.number(min(shares))} to {claims.number(max(shares))}"

    def made(self):
        dates = sorted({row["date"] for row in self.rows if row["date"]})
        machines = sorted({f"{row['cpu']}, {row['cores']} cores" for row in self.rows if row["cpu"]})
        return f"{'..'.join(dict.fromkeys((dates[0], dates[-1])))}, {' / '.join(machines)}"


def of_claim(root, study, text):
    row = next((row for row in rows(root, study, "claims") if row["claim"] == text), None)
    if row is None or not row["ours"]:
        raise ValueError(f"no claim '{text}' with a figure")
    return claims.shown({**row, "unit": ""})


def configuration_of(row):
    """Of a row of target.csv, without its mark."""
    return row["configuration"].removeprefix("* ").removeprefix("method ")


def ratio_of(row):
    """A ratio of target.csv and its interval."""
    ends = [f"{float(row[end]):.2g}" if row[end] else "" for end in ("from", "to")]
    return f"{float(row['ratio']):.2g} ({ends[0]}..{ends[1]})"


def inline(root, study, what):
    """The NUMBER."""
    what = " ".join(what.split())
    if what == "made":
        return Study(root, study).made()
    if found := re.fullmatch(r"claim (.+)", what):
        return of_claim(root, study, found[1])
    if found := re.fullmatch(r"found (.+)", what):
        of = rows(root, study, "claims")
        return f"{sum(row['verdict'] == found[1] for row in of)} of {len(of)}"
    if found := re.fullmatch(r"points of (.+) against (.+)", what):
        of = Study(root, study)
        own = of.cell(found[1])
        return f"{100 * (float(of.cell(found[2], own)['test_accuracy']) - float(own['test_accuracy'])):.1f}"
    if found := re.fullmatch(r"ratio of (\w+) of (.+) against (.+)", what):
        of = Study(root, study)
        own = of.cell(found[2])
        return claims.number(float(own[found[1]]) / float(of.cell(found[3], own)[found[1]]))
    if found := re.fullmatch(r"(time|bytes) to target of (.+)", what):
        row = next((row for row in rows(root, study, "target") if configuration_of(row) == found[2]
                    and row["figure"].startswith(found[1]) and row["ratio"]), None)
        if row is None:
            raise ValueError(f"target.csv has no {found[1]} of '{found[2]}'")
        return ratio_of(row)
    if found := re.fullmatch(r"range of (.+) in (\w+)", what):
        return Study(root, study).range(found[1].split(", "), found[2])
    if found := re.fullmatch(r"ms of (.+)", what):
        return claims.number(1e3 * float(Study(root, study).cell(found[1])["step_s"]))
    if found := re.fullmatch(r"(\w+) of (.+)", what):
        row = Study(root, study).cell(found[2])
        if not row.get(found[1]):
            raise ValueError(f"summary.csv has no {found[1]} of '{found[2]}'")
        return accuracy(row) if found[1] == "test_accuracy" else claims.number(float(row[found[1]]))
    raise ValueError(f"'{what}' is unknown")


def replaced(root, text):
    """The page with its NUMBERs as they are kept now."""
    def fresh(found):
        try:
            return found[1] + inline(root, found[2], found[3]) + found[5]
        except (OSError, KeyError, ValueError) as error:
            raise ValueError(f"{found[1]}: {error}") from error
    return INLINE.sub(fresh, text)


# ---- tables ----

def table(head, lines):
    return "".join("| " + " | ".join(line) + " |\n" for line in [head, ["---"] * len(head), *lines])


def codec_accuracy(root):
    study = Study(root, "codec_accuracy")
    by = {(row["level.codec"], row["level.optimizer"]): accuracy(row) for row in study.rows if row["test_accuracy"]}
    optimizers = study.factors["optimizer"]
    return table(["codec", *optimizers], [[codec, *(by.get((codec, one), "-") for one in optimizers)]
                                          for codec in study.factors["codec"]])


def pays(root, study):
    """What each configuration spends until the target, and the rates at which it pays: of target.csv and pays.csv."""
    spent = {(configuration_of(row), row["figure"]): row for row in rows(root, study, "target")}
    rates = Study(root, study).factors["rate"][::-1]

    def ratio(configuration, rate, figure):
        row = spent.get((f"{configuration}, rate {rate}", figure))
        return ratio_of(row) if row and row["ratio"] else "-"
    return table(["method", *(f"time, {rate}" for rate in rates), f"bytes, {rates[0]}", "does it pay?"], [
        [row["configuration"], *(ratio(row["configuration"], rate, row["figure"]) for rate in rates),
         ratio(row["configuration"], rates[0], row["figure"].replace("time", "bytes")), row["verdict"]]
        for row in rows(root, study, "pays")])


def spent(root, study):
    """What each configuration spends until the target, over links of one rate: of target.csv."""
    by = {}
    for row in rows(root, study, "target"):
        by.setdefault(configuration_of(row), [row["seeds at the target"]]).append(ratio_of(row) if row["ratio"] else "-")
    return table(["method", "seeds at the target", "time", "bytes"], [[name, *found] for name, found in by.items()])


def ends(root, study):
    """Milliseconds of a step and how good the configurations end, medians over seeds: of runs.csv."""
    runs, of = rows(root, study, "runs"), Study(root, study)
    rates, apart = of.factors["rate"][::-1], of.factors.get("labels", [""])
    column = "test_accuracy" if of.baseline["test_accuracy"] else "test_loss"

    def middle(column, factor, **levels):
        found = [float(row[column]) for row in runs if row[column] and all(
            row.get(f"level.{name}", "") == level for name, level in levels.items())]
        return claims.number(factor * statistics.median(found)) if found else "-"
    head = [f"{column.replace('_', ' ')}{labels and f', {labels}'}" for labels in apart]
    return table(["method", *(f"step (ms), {rate}" for rate in rates), *head], [
        [method, *(middle("step_s", 1e3, method=method, rate=rate, labels=apart[0]) for rate in rates),
         *(middle(column, 1, method=method, labels=labels) for labels in apart)]
        for method in of.factors["method"]])


def networks(root):
    """What each network's exchange costs, and where training ends: medians over seeds."""
    of = Study(root, "architectures")
    rates = of.factors["rate"]

    def lines(model, exchange):
        cells = [of.cell(f"model={model},exchange={exchange},rate={rate}") for rate in rates]
        return [claims.number(1e3 * float(row[column])) for row in cells
                for column in ("step_s", "exposed_s", "hidden_s")] + [accuracy(cells[0])]
    return table(["network", "exchange", *(f"{what} (ms), {rate}" for rate in rates for what in ("step", "exposed", "hidden")),
                  "accuracy (%)"],
                 [[model, exchange, *lines(model, exchange)]
                  for model in of.factors["model"] for exchange in of.factors["exchange"]])


def steps(root, study):
    """Milliseconds of a step: the first factor down, the second across."""
    of = Study(root, study)
    down, across = list(of.factors)[:2]
    return table(["step (ms)", *of.factors[across]], [
        [one, *(claims.number(1e3 * float(of.cell(f"{down}={one},{across}={other}")["step_s"])) for other in of.factors[across])]
        for one in of.factors[down]])


def even(root, study):
    """Over which links a simulated exchange is faster than the one it is compared with, by the ranks: of break_even.csv."""
    by = {}
    for row in rows(root, study, "break_even"):
        by.setdefault(row["configuration"], {})[row["ranks"]] = row["verdict"]
    ranks = list(dict.fromkeys(count for found in by.values() for count in found))
    return table(["exchange", *(f"{count} ranks" for count in ranks)],
                 [[name, *(found.get(count, "-") for count in ranks)] for name, found in by.items()])


def tables(root):
    return {"codec accuracy": codec_accuracy(root), "networks": networks(root),
            **{f"steps {study}": steps(root, study) for study in ("stragglers", "uplinks")},
            "even scale_out": even(root, "scale_out"),
            **{f"{what.__name__} feedback": what(root, "feedback") for what in (ends, spent)},
            **{f"{what.__name__} {study}": what(root, study)
               for what in (ends, pays) for study in ("methods", "methods_gpt")}}
