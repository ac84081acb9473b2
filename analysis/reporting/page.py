"""report.html: all studies of a folder in one file that needs nothing else. Each begins with its answer."""

import importlib
import math
import os
import re
from collections import Counter

from . import answer, charts, claims, efficiency, ends, expect, failed, figure, judge, kept, learning, verdicts
from .batches import WARM_UP_RULE
from .info import unlike
from .loose import link_text
from .markup import (button, escape, facts, folded, items, page, paragraph, table, tag)
from .model import Chart, NotShown, judged
from .rows import scaled

STATISTICS = (
    "One step time per run, a steady mean: over the ranks, and over the steps but for the quickest and the "
    "slowest blocks of them (of simulated runs the mean of all but the first). Several runs are shown "
    "by their median with a 95% interval over the runs (bootstrap; of 3 or 4 runs a t "
    "interval, of fewer none), never over the steps of one run. Ratios are taken "
    "within blocks (runs close in time with one seed). All pairs of configurations are one family, judged "
    "together: the chance that any is said to differ where none does is at most 5% (Holm; four fifths of "
    "it for the pairs with the baseline); time and bytes to a target that the study names belong to them. "
    "Tables, sentences and charts quote these verdicts. A "
    "difference within the noise is reported as such, with the least one that would be detected. "
    "Accuracies are a family of their own, and each claim of the spec is judged alone.")

MADE_THEN, BEHIND_IT = "Made when the runs were there", "; the figures behind it were not kept."
MANY = 4  # sentences on the first screen; more are folded
BADGES = {expect.SUPPORTED: ("\u2713 supported", "badge better"),
          expect.REFUTED: ("\u2717 refuted", "badge worse"),
          expect.UNDECIDED: ("? undecided", "badge")}


class Drawn:
    """The charts of one study."""

    def __init__(self, results, where):
        self.shown = []  # (Chart, HTML of its drawing; "": it has none)
        self.not_shown = []  # (title, why)
        self.errors = []  # (name, error): a bug of the chart
        for name in charts.ORDER if results.cells else ():
            self.build(name, results, where)

    def build(self, name, results, where):
        module = importlib.import_module(f".{name}", charts.__name__)
        try:
            if results.kept is not None and name not in kept.CHARTS:
                self.shown.append(kept_chart(results.kept, name, module, where))
                return
            chart = module.build(results)
            chart.name = name
            self.shown.append((chart, figure.inline_svg(chart, where) if chart.draw else ""))
        except NotShown as reason:
            self.not_shown.append((module.TITLE, str(reason)))
        except Exception as error:  # one chart's bug must not lose the report
            self.not_shown.append((module.TITLE, f"error: {type(error).__name__}: {error}"))
            self.errors.append((name, error))


def kept_chart(folder, name, module, where):
    """(Chart, HTML of its drawing) of the drawing and the table that were kept in the folder."""
    drawing, figures = (os.path.join(folder, f"{name}.{kind}") for kind in ("svg", "csv"))
    made = kept.table_in(figures) if os.path.lexists(figures) else None
    if os.path.lexists(drawing):
        html, said = figure.kept_svg(drawing, f"{where} {name}")
        caption = said.removeprefix(f"{module.TITLE}. ")
    elif made and name in charts.TABLES:
        html, caption = "", module.CAPTION
    else:
        raise NotShown(kept.NOT_KEPT)
    return Chart(module.TITLE, caption, None, made, name=name, see=MADE_THEN + ("." if made else BEHIND_IT)), html


# ---- the head of a study ----

def different(results, read):
    """The runs' values, each once, as finished HTML."""
    found = dict.fromkeys(str(read(run.info)) for run in results.runs)
    return "; ".join(map(escape, found)) or "unknown"


def machine_of(info):
    machine = info["machine"]
    hosts = sorted(set(machine["hosts"]))
    shown = ", ".join(hosts[:4]) + (f" and {len(hosts) - 4} more" if len(hosts) > 4 else "")
    gemm = f", {machine['gemm']}" if "gemm" in machine else ""  # a library's program has its own
    return f"{machine['cpu']}, {machine['cores_usable']} cores{gemm}; host {shown}"


def shape_of(info):
    machine = info["machine"]
    return (f"{machine['ranks']} x {machine['threads_per_rank']}"
            + (" (oversubscribed)" if machine["oversubscribed"] else "")
            + "".join(f" ({name})" for name, _ in unlike(info)))


def link_of(info):
    link = info["link"]
    return f"emulated, {link_text(link)}" if link else "the hosts' own"


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
    planned = "" if results.study is None or results.kept else f", of {len(results.study['runs'])} planned"
    over = sum("oversubscribed" in run.marks for run in results.runs)
    return ends.counted(results.counts) + planned + f"; {over} of {len(results.runs)} oversubscribed" * bool(over)


def kept_head(results):
    """What the kept files and the spec say; the rest is named."""
    study, runs = results.study, results.runs
    blocks = {run.block: run.info["seed"] for run in runs}
    dates = sorted({run.info["started_utc"][:10] for run in runs})
    return facts([
        ("Made of", f"the figures of each run that were kept ({kept.RUNS}); the folders of the runs were not"),
        ("Spec", escape(f"{os.path.basename(study['spec']['file'])}, as it is now")),
        ("Source", escape(", ".join(study["source"])) or None),
        ("Design", escape(f"{study['design']}; {len(study['cells'])} configurations in {len(blocks)} blocks, seeds "
                          f"{', '.join(map(str, sorted(set(blocks.values()))))}; randomised within each block")),
        ("Factors", escape("; ".join(f"{name}: {', '.join(levels)}" for name, levels in results.factors.items()))),
        ("Baseline", escape(baseline_of(results))),
        ("Tuned", tuned_of(study)),
        ("Runs", escape(counts(results))),
        ("Measured", escape("..".join(dict.fromkeys((dates[0], dates[-1]))))),
        ("Machine", different(results, lambda info: f"{info['machine']['cpu']}, {info['machine']['cores_usable']} cores")),
        ("Ranks x threads", different(results, lambda info: "{ranks} x {threads_per_rank}".format_map(info["machine"]))),
        ("Not kept", "version and commit of gradwire, host, MPI library, link and its cost, parameters, commands"),
        ("Warm-up", escape(WARM_UP_RULE)),
        ("Statistics", escape(STATISTICS)),
    ])


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
        ("Tuned", tuned_of(study)),
        ("Made", escape(study["created_utc"])),
    ]


def tuned_of(study):
    """Which options the trials chose, and of how many; None: there were none."""
    if not study.get("tuned") or "tune" not in study:
        return None
    tune, chosen = study["tune"], [row for row in study["tuned"] if row.get("chosen") == "1"]
    each = math.prod(map(len, tune["options"].values())) * len(tune["seeds"])
    return escape(f"by {tune['by'].replace('_', ' ')} after the last epoch, {each} trials for each {tune['factor']} "
                  f"(seeds {', '.join(map(str, tune['seeds']))}, which no compared run has): " + "; ".join(
                      f"{row.get(tune['factor'])}: {', '.join(f'{name} {row.get(name)}' for name in tune['options'])}"
                      for row in chosen))


def trials_of(results):
    """The trials, which do not enter the comparison."""
    rows = (results.study or {}).get("tuned")
    if not rows:
        return ""
    return folded(f"Trials of tune, not compared: {len(rows)} choices of options",
                  ended(results.trials) if results.trials else "",
                  table(list(rows[0]), [[row.get(name) for name in rows[0]] for row in rows],
                        f"Trials of {results.name}"))


def baseline_of(results):
    empty = [f"{cell.label}, without a finished run" for cell in results.empty if cell.baseline]
    return results.baseline.label if results.baseline else empty[0] if empty else "none"


def head(results):
    if results.kept is not None:
        return kept_head(results)
    study = results.study
    factors = "; ".join(f"{name}: {', '.join(levels)}" for name, levels in results.factors.items())
    known = study_facts(study) if study else [
        ("Made", "by no study: what differs among these runs counts as their factors")]
    return facts(known + [
        ("Factors", escape(factors) or "none"),
        ("Baseline", escape(baseline_of(results))),
        ("Runs", escape(counts(results))),
        ("gradwire", different(results, lambda info: f"{info['version']}, commit {info['commit']}")),
        ("Machine", different(results, machine_of)),
        ("MPI", different(results, lambda info: " ".join(info["mpi"]["library"].split()))),
        ("Ranks x threads", different(results, shape_of)),
        ("Link", different(results, link_of)),
        ("Link's cost", link_cost_of(results.runs)),
        ("Warm-up", escape(WARM_UP_RULE)),
        ("Statistics", escape(STATISTICS)),
    ])


# ---- the first screen ----

def few(lines, more):
    """A list of finished HTML, folded from MANY on."""
    return items(lines[:MANY]) + (folded(f"{len(lines) - MANY} {more}", items(lines[MANY:]), paper=True)
                                  if lines[MANY:] else "") if lines else ""


def once(pairs):
    """[(labels of one text, the text)] of [(label, text)]: a sentence that holds of many is said once."""
    found = {}
    for label, text in pairs:
        found.setdefault(text, []).append(label)
    return [("; ".join(labels), text) for text, labels in found.items()]


def bold(pairs):
    return [tag("strong", escape(label)) + ": " + escape(text) for label, text in once(pairs)]


def badge(state):
    text, class_ = BADGES[state]
    return tag("span", text, class_=class_)


def verdict_of(results):
    """The claim or question, and whether the runs support it."""
    study, said = results.study, answer.statements(results)
    head = paragraph(study["claim"] if study else answer.QUESTION, "claim")
    if not said:
        why = ("The study states no expectation that figures could decide (--expect tells more); the "
               "figures follow.") if study else ""
        return head + (tag("p", badge(expect.UNDECIDED), escape(why), class_="verdict") if why else "")
    state = expect.overall([one.state for one in said])
    lines = [badge(text[0]) + " " + label + ": " + escape("; ".join(filter(None, text[1:]))) for label, text in once(
        [(tag("strong", escape(one.label)) + ", expected " + escape(one.word), (one.state, one.verdict, one.more)) for one in said])]
    if len(said) == 1:
        return head + tag("p", lines[0], class_="verdict")
    return head + tag("p", badge(state), escape(
        f"Of {len(said)} tested statements {expect.counted([one.state for one in said])}; beyond them the claim "
        "is not judged."), class_="verdict") + few(lines, "more")


def answer_table(results, where):
    made, shown = answer.table(results), answer.first_rows(results)
    reference = verdicts.reference_of(results)
    html = table(made.columns, [made.rows[i] for i in shown], f"Main figures of {results.name}",
                 f"{where}-answer")
    if len(shown) < len(made.rows):
        html += folded(f"All {len(made.rows)} configurations",
                       table(made.columns, made.rows, "All configurations", f"{where}-all"), paper=True)
    within = results.hints.get("compare_within")
    over = f"{reference.label}" + (f", or what stands for it with the same {' and '.join(within)}"
                                   if within and results.baseline else "")
    target = learning.target_of(results)
    reach = target and any(map(learning.points, results.runs))
    to = f" Target: accuracy {target[0]:.4g}, {target[1]}." if reach else ""
    return tag("div", html, paragraph(
        f"Speedup is over {over}.{to} \u25b2 better, \u25bc worse, beyond the noise; "
        "~ modelled; * see the warnings.", "note"), class_="answer")


def failed_of(found):
    """The first thing on the page, of failed.lines()."""
    nothing = "" if found[failed.FAILED] else paragraph("Nothing failed: no run, no statement, no claim.", "note")
    return nothing + "".join(
        tag("div", tag("p", tag("strong", heading)), few(list(map(escape, lines)), "more"), class_="warnings failed",
            role="note") for heading, lines in found.items() if lines)


def claims_of(results):
    """The claims of the spec, each with its verdict."""
    made = judge.of_results(results)
    if not made:
        return ""
    better = {claims.CONFIRMED: True, claims.REFUTED: False}
    lines = [[row["claim"], row["whose"], row["theirs"], claims.shown(row) or None, row["figure"], row["confirmed"],
              judged(claims.told(row), better.get(row["verdict"])), row["why"]] for row in made]
    said = Counter(row["verdict"] for row in made)
    return tag("h3", "The claims") + paragraph(
        f"Of {len(made)} claims " + ", ".join(f"{said[one]} {one}" for one in dict.fromkeys((
            claims.CONFIRMED, claims.REFUTED, claims.UNDECIDED, *said))) + ". Each is judged alone, by a criterion "
        "of its own at 95%; the comparisons around it are judged together.", "note") + table(
        ["claim", "whose", "theirs", "found here", "figure", "confirmed if", "verdict", "why"], lines,
        f"Claims of {results.name}")


def pairs_of(results):
    found = answer.groups(results)
    said = [answer.pair_sentences(group) for group in found]
    first, rest = [lines[0] for lines in said], [line for lines in said for line in lines[1:]]
    return few(bold(first), "more groups") + (
        folded(f"Each other one against the best ({len(rest)})", items(bold(rest))) if rest else "")


def efficiencies(results):
    made, said = efficiency.table_of(results)
    return folded("Efficiencies", table(made.columns, made.rows, f"Efficiencies of {results.name}"), paragraph(
        " ".join(said) + " Medians over the runs; absent where a run does not hold what it takes (docs/analysis.md, "
        "Efficiencies).", "note")) if said else ""


def against_baseline(results):
    """Verdicts in words."""
    said = verdicts.sentences(results)
    if said:
        return folded(f"Step time against the baseline ({results.baseline.label}), in words",
                      items(bold(said)))
    if len(results.cells) < 2:
        return paragraph("A single configuration: nothing to compare.")
    if any(cell.baseline for cell in results.empty):
        return paragraph("The baseline has no finished run, so no verdicts: name another one by "
                         "--baseline.")
    return paragraph("No baseline, so no verdicts: name one by --baseline.")


def warnings_of(results):
    alarms = verdicts.warnings(results)
    return tag("div", paragraph("Before you believe a figure:"), items(map(escape, alarms)),
               class_="warnings", role="note") if alarms else ""


def lead_of(results, shown):
    """The chart of the first screen: the one that shows what the study asks."""
    hints = results.hints
    wanted = (["scaling"] if hints.get("scaling") else []) + (["sweep"] if hints.get("x") else [])
    order = [*wanted, "time_stack", *(chart.name for chart, _ in shown)]
    return min(shown, key=lambda one: order.index(one[0].name), default=None)


# ---- charts, lists ----

def chart_section(chart, drawing, where, common):
    """`common`: the notes that stand elsewhere."""
    name = f"{where}-{chart.name}"
    save = tag("p", "Save this chart: ", button("svg", name, "SVG"), class_="save") if drawing else ""
    figures = table(chart.table.columns, chart.table.rows, f"Data: {chart.title}", name) if chart.table else ""
    notes = [paragraph(note, "note") for note in chart.notes if note not in common]
    see = chart.see or re.split(r"(?<=[.:]) ", chart.caption)[0]
    return tag("section", tag("h3", escape(chart.title)), paragraph(see, "see"), drawing or figures, save,
               folded("Data, and how it was measured" if drawing else "How it was measured",
                      paragraph(chart.caption, "caption"), *notes, figures if drawing else ""),
               class_="chart" + " detail" * (chart.name in charts.DETAILS), id=name) + "\n"


def common_notes(drawn):
    """Notes that several charts have, which stand once."""
    counted = Counter(note for chart, _ in drawn.shown for note in dict.fromkeys(chart.notes))
    return [note for note, times in counted.items() if times > 1]


def listed(title, pairs):
    """A list of (name, ..., why); nothing if it is empty."""
    lines = [tag("code", escape(name)) + ": " + escape(why) for name, *_, why in pairs]
    return tag("h3", escape(title)) + items(lines) if lines else ""


def ended(results):
    """How the runs ended."""
    return paragraph(f"Runs: {counts(results)}.", "runs" + " lost" * bool(results.lost))


def not_there(results):
    """The runs without figures, each with the reason."""
    return ("".join(listed(f"{end.capitalize()} runs", [(one.folder, one.why) for one in results.ended(end)])
                    for end in ends.LOST)
            + listed("Left out", results.left_out)
            + listed("Planned, and not run", [(name, "no folder") for name in results.missing]))


PROVENANCE = ["folder", "configuration", "block", "started (UTC)", "commit", "ranks x threads",
              "hosts", "steps", "step time (ms)", "bound (ms)", "of bound",
              "batches interrupted (%)", "replicas", "marks", "command"]


KEPT_PROVENANCE = ["run", "configuration", "seed", "started (UTC)", "ranks x threads", "step time (ms)", "marks"]


def kept_provenance(results):
    rows = [[run.folder, cell.label, run.info["seed"], run.info["started_utc"],
             "{ranks} x {threads_per_rank}".format_map(run.info["machine"]), run.step_s * 1e3, "; ".join(run.marks)]
            for cell in results.cells for run in cell.runs]
    return folded(f"Provenance: all {len(rows)} runs", table(KEPT_PROVENANCE, rows, f"Runs of {results.name}")) if rows else ""


def provenance(results):
    if results.kept is not None:
        return kept_provenance(results)
    rows = []
    for cell in results.cells:
        for run in cell.runs:
            info, interrupted = run.info, run.interrupted
            rows.append([run.folder, cell.label, run.block, info["started_utc"], info["commit"],
                         shape_of(info), ", ".join(sorted(set(info["machine"]["hosts"]))),
                         info["results"]["steps"], run.step_s * 1e3, scaled(run.bound_s, 1e3),
                         run.of_bound, scaled(interrupted, 100),
                         info["results"].get("replica_hash", ""), "; ".join(run.marks), info["command"]])
    return folded(f"Provenance: all {len(rows)} runs",
                  table(PROVENANCE, rows, f"Runs of {results.name}")) if rows else ""


def first_screen(results, lead, where, common):
    if not results.cells:
        claim = paragraph(results.study["claim"], "claim") if results.study else ""
        return claim + paragraph("No finished run.") + ended(results)
    return (verdict_of(results) + ended(results) + answer_table(results, where) + claims_of(results) + pairs_of(results)
            + (chart_section(*lead, where, common) if lead else "")
            + against_baseline(results) + efficiencies(results) + warnings_of(results))


def section(results, drawn, where):
    """One study."""
    errors = [(importlib.import_module(f".{name}", charts.__name__).TITLE, error) for name, error in drawn.errors]
    lead, common = lead_of(results, drawn.shown), common_notes(drawn)
    rest = [one for one in drawn.shown if one is not lead]
    links = [tag("a", escape(chart.title), href=f"#{where}-{chart.name}") for chart, _ in rest]
    study = results.study
    return tag(
        "section", tag("h2", escape(results.name), id=where),
        failed_of(failed.lines(results, errors)), first_screen(results, lead, where, common),
        folded("Notes on the charts", items(map(escape, common))) if common else "",
        tag("nav", items(links), aria_label=f"Charts of {results.name}") if links else "",
        *(chart_section(*one, where, common) for one in rest),
        tag("h3", "About these runs"), head(results), trials_of(results),
        listed("Charts not shown", drawn.not_shown), not_there(results), provenance(results),
        folded("Spec", tag("pre", escape(study["spec"]["text"]), tabindex=0)) if study else "",
        class_="study", aria_labelledby=where) + "\n"


def render(all_results, folder):
    """(the page, [Drawn of each Results])."""
    drawn = [Drawn(results, f"s{i}") for i, results in enumerate(all_results)]
    links = [tag("a", escape(results.name), href=f"#s{i}") for i, results in enumerate(all_results)]
    return page(
        f"gradwire report: {folder}", tag("a", "Skip to the figures", class_="skip", href="#s0"),
        tag("header", tag("h1", escape(f"gradwire report: {folder}")), tag("p", tag(
            "label", '<input type="checkbox" data-print=""> Print all details'), class_="save")),
        tag("nav", items(links), aria_label="Studies") if len(links) > 1 else "",
        tag("main", *(section(results, one, f"s{i}")
                      for i, (results, one) in enumerate(zip(all_results, drawn))))), drawn
