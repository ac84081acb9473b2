"""report.html: all studies of a folder in one file that needs nothing else."""

import importlib
import os

from reporting import charts, figure, verdicts
from reporting.batches import WARM_UP_RULE
from reporting.loose import link_rate
from reporting.markup import (escape, facts, folded, items, page, paragraph, table, tag)
from reporting.model import NotShown
from reporting.rows import scaled

STATISTICS = (
    "One figure per run: the median of its steps, each on its slowest rank. Several runs are shown "
    "by their median with a 95% interval over the runs (bootstrap; of 3 or 4 runs a t "
    "interval, of fewer none), never over the steps of one run. Ratios to the baseline are taken "
    "within blocks (runs close in time with one seed) and judged together (Holm, 5%). A "
    "difference within the noise is reported as such, with the least one that would be detected.")

MANY = 12  # verdicts; more are folded


class Drawn:
    """The charts of one study."""

    def __init__(self, results, where):
        self.shown = []  # (Chart, HTML of its drawings)
        self.not_shown = []  # (title, why)
        self.errors = []  # (name, error): a bug of the chart
        for name in charts.ORDER if results.cells else ():
            self.build(importlib.import_module(f"reporting.charts.{name}"), results, where)

    def build(self, module, results, where):
        try:
            chart = module.build(results)
            self.shown.append((chart, figure.inline_svg(chart, where)))
        except NotShown as reason:
            self.not_shown.append((module.TITLE, str(reason)))
        except Exception as error:  # one chart's bug must not lose the report
            self.not_shown.append((module.TITLE, f"error: {type(error).__name__}: {error}"))
            self.errors.append((module.NAME, error))


# ---- the head of a study ----

def different(results, read):
    """The runs' values, each once, as finished HTML."""
    found = dict.fromkeys(str(read(run.info)) for run in results.runs)
    return "; ".join(map(escape, found)) or "unknown"


def machine_of(info):
    machine = info["machine"]
    hosts = sorted(set(machine["hosts"]))
    shown = ", ".join(hosts[:4]) + (f" and {len(hosts) - 4} more" if len(hosts) > 4 else "")
    return f"{machine['cpu']}, {machine['cores_usable']} cores, {machine['gemm']}; host {shown}"


def version_of(info):
    return f"{info['version']}, commit {info['commit']}"


def shape_of(info):
    machine = info["machine"]
    return (f"{machine['ranks']} x {machine['threads_per_rank']}"
            + (" (oversubscribed)" if machine["oversubscribed"] else ""))


def link_of(info):
    link = info["link"]
    return f"emulated, {link_rate(link)}" if link else "the hosts' own"


def link_cost_of(runs):
    """The emulation's share of the cores, over all runs that measured it; None: not emulated."""
    costs = [(run.info["link"].get("cost") or {}).get("cores_per_rank")
             for run in runs if run.info["link"]]
    told = [cost for cost in costs if cost is not None]
    if not told:
        return "absent" if costs else None
    return (f"{min(told):.1%} to {max(told):.1%} of a core for each rank that trains, in interrupts"
            + (f"; absent in {len(costs) - len(told)} runs" if len(told) < len(costs) else ""))


def counts(results):
    done = len(results.runs)
    parts = [f"{done} done", f"{len(results.failed)} failed", f"{len(results.diverged)} diverged",
             f"{len(results.left_out)} left out"]
    if results.study is not None:
        parts += [f"{len(results.missing)} not run, of {len(results.study['runs'])} planned"]
    over = sum("oversubscribed" in run.marks for run in results.runs)
    return escape(", ".join(parts) + f"; {over} of {done} oversubscribed")


def study_facts(study):
    spec, blocks = study["spec"], study["blocks"]
    seeds = sorted({block["seed"] for block in blocks})
    return [
        ("Spec", escape(f"{os.path.basename(spec['file'])}, SHA-256 {spec['sha256'][:16]}"
                        + (", short version" if study["short"] else ""))),
        ("Source", escape(", ".join(map(str, study["source"]))) if study["source"] else None),
        ("Design", escape(f"{study['design']}; {len(study['cells'])} configurations in "
                          f"{len(blocks)} blocks, seeds {', '.join(map(str, seeds))}; randomised "
                          "within each block")),
        ("Made", escape(study["created_utc"])),
    ]


def baseline_of(results):
    empty = [f"{cell.label}, without a finished run" for cell in results.empty if cell.baseline]
    return results.baseline.label if results.baseline else empty[0] if empty else "none"


def head(results):
    study = results.study
    factors = "; ".join(f"{name}: {', '.join(levels)}" for name, levels in results.factors.items())
    known = study_facts(study) if study else [
        ("Made", "by no study: what differs among these runs counts as their factors")]
    return facts(known + [
        ("Factors", escape(factors) or "none"),
        ("Baseline", escape(baseline_of(results))),
        ("Runs", counts(results)),
        ("gradwire", different(results, version_of)),
        ("Machine", different(results, machine_of)),
        ("MPI", different(results, lambda info: " ".join(info["mpi"]["library"].split()))),
        ("Ranks x threads", different(results, shape_of)),
        ("Link", different(results, link_of)),
        ("Link's cost", link_cost_of(results.runs)),
        ("Warm-up", escape(WARM_UP_RULE)),
        ("Statistics", escape(STATISTICS)),
    ])


def findings(results):
    """Verdicts and warnings."""
    said = verdicts.sentences(results)
    lines = [tag("strong", escape(label)) + ": " + escape(text) for label, text in said]
    if lines:
        html = paragraph(f"Step time against the baseline ({results.baseline.label}):")
        html += items(lines[:MANY])
        html += folded(f"{len(lines) - MANY} more", items(lines[MANY:])) if lines[MANY:] else ""
    elif len(results.cells) < 2:
        html = paragraph("A single configuration: nothing to compare.")
    elif any(cell.baseline for cell in results.empty):
        html = paragraph("The baseline has no finished run, so no verdicts: name another one by "
                         "--baseline.")
    else:
        html = paragraph("No baseline, so no verdicts: name one by --baseline.")
    alarms = verdicts.warnings(results)
    if alarms:
        html += tag("div", paragraph("Before you believe a figure:"), items(map(escape, alarms)),
                    class_="warnings", role="note")
    return html


# ---- charts, lists ----

def chart_section(chart, drawing, anchor):
    left = tag("div", drawing, paragraph(chart.caption, "caption"),
               *(paragraph(note, "note") for note in chart.notes))
    right = table(chart.table.columns, chart.table.rows, f"Data: {chart.title}")
    return tag("section", tag("h3", escape(chart.title)), tag("div", left, right, class_="beside"),
               class_="chart", id=anchor) + "\n"


def listed(title, pairs):
    """A list of (name, ..., why); nothing if it is empty."""
    lines = [tag("code", escape(name)) + ": " + escape(why) for name, *_, why in pairs]
    return tag("h3", escape(title)) + items(lines) if lines else ""


def not_there(results):
    """The runs without figures, each with the reason."""
    return (listed("Failed runs", results.failed) + listed("Diverged runs", results.diverged)
            + listed("Left out", results.left_out)
            + listed("Planned, and not run", [(name, "no folder") for name in results.missing]))


PROVENANCE = ["folder", "configuration", "block", "started (UTC)", "commit", "ranks x threads",
              "hosts", "steps", "step time (ms)", "bound (ms)", "of bound",
              "batches interrupted (%)", "replicas", "marks", "command"]


def provenance(results):
    rows = []
    for cell in results.cells:
        for run in cell.runs:
            info, interrupted = run.info, run.interrupted
            rows.append([run.folder, cell.label, run.block, info["started_utc"], info["commit"],
                         shape_of(info), ", ".join(sorted(set(info["machine"]["hosts"]))),
                         info["results"]["steps"], run.step_s * 1e3, scaled(run.bound_s, 1e3),
                         run.of_bound, scaled(interrupted, 100),
                         info["results"]["replica_hash"], "; ".join(run.marks), info["command"]])
    return folded(f"Provenance: all {len(rows)} runs",
                  table(PROVENANCE, rows, f"Runs of {results.name}")) if rows else ""


def section(results, drawn, where):
    """One study."""
    links = [tag("a", escape(chart.title), href=f"#{where}-{chart.name}")
             for chart, _ in drawn.shown]
    study = results.study
    return tag(
        "section", tag("h2", escape(results.name), id=where),
        paragraph(study["claim"], "claim") if study else "",
        findings(results) if results.cells else paragraph("No finished run."),
        tag("nav", items(links), aria_label=f"Charts of {results.name}") if links else "",
        head(results),
        *(chart_section(chart, drawing, f"{where}-{chart.name}")
          for chart, drawing in drawn.shown),
        listed("Charts not shown", drawn.not_shown), not_there(results), provenance(results),
        folded("Spec", tag("pre", escape(study["spec"]["text"]), tabindex=0)) if study else "",
        aria_labelledby=where) + "\n"


def render(all_results, folder):
    """(the page, [Drawn of each Results])."""
    drawn = [Drawn(results, f"s{i}") for i, results in enumerate(all_results)]
    links = [tag("a", escape(results.name), href=f"#s{i}") for i, results in enumerate(all_results)]
    return page(
        f"gradwire report: {folder}", tag("a", "Skip to the figures", class_="skip", href="#s0"),
        tag("header", tag("h1", escape(f"gradwire report: {folder}"))),
        tag("nav", items(links), aria_label="Studies") if len(links) > 1 else "",
        tag("main", *(section(results, one, f"s{i}")
                      for i, (results, one) in enumerate(zip(all_results, drawn))))), drawn
