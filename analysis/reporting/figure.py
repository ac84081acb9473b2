"""Renders charts as SVG text from matplotlib figures.

Charts use the colours named here. In a page each becomes a CSS variable, so one drawing serves
light and dark ground; a separate file keeps them. Text stays text, in the reader's font.

The colours remain distinct under the three kinds of colour blindness (a test simulates them) and
have a contrast of 3 to either ground."""

import contextlib
import hashlib
import io
import re
import warnings
import xml.etree.ElementTree as ElementTree

import matplotlib
import matplotlib.style
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

# name -> on light ground (what a chart draws with), on dark ground
COLOURS = {
    "ground": ("#ffffff", "#14171c"),
    "ink": ("#1b1f24", "#e6e9ee"),
    "faint": ("#626a74", "#98a1ad"),
    "grid": ("#dce0e5", "#333a43"),
    "series-0": ("#021a83", "#0f6bbe"),
    "series-1": ("#952906", "#e0782f"),
    "series-2": ("#418163", "#78c2ad"),
    "series-3": ("#58003b", "#8b5178"),
    "series-4": ("#b3902c", "#e0c45c"),
    "series-5": ("#449fc2", "#78effe"),
    "series-6": ("#8b50b0", "#c677f1"),
    "series-7": ("#4d525d", "#828c96"),
    "part-computation": ("#043b98", "#406be6"),
    "part-memory": ("#079be4", "#58b1ee"),
    "part-exposed": ("#8f3303", "#e2491b"),
    "part-waiting": ("#b78633", "#dbb078"),
    "part-codec": ("#560340", "#8d4d87"),
    "part-other": ("#6d717c", "#dae3ec"),
}


# One colour for better and one for worse, in charts and in tables.
BETTER_NAME, WORSE_NAME = "series-2", "series-1"
GROUND, INK, FAINT, GRID, *SERIES = (light for name, (light, _) in COLOURS.items()
                                     if not name.startswith("part-"))
PART = {name.partition("-")[2]: light for name, (light, _) in COLOURS.items()
        if name.startswith("part-")}

BETTER, WORSE = COLOURS[BETTER_NAME][0], COLOURS[WORSE_NAME][0]

# The hatch of bars; lines of the ground's colour are visible on any other.
MODELLED = {"hatch": "////", "edgecolor": GROUND, "linewidth": 0}

SHARP = 192  # pixels an inch of what a notebook shows at half of that
SIZE_IN = (9.2, 3.4)  # width, and the height unless draw() sets another

STYLE = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # a label with two dollars is not a formula
    "text.color": INK, "axes.edgecolor": FAINT, "axes.labelcolor": INK,
    "xtick.color": FAINT, "ytick.color": FAINT, "xtick.labelcolor": INK, "ytick.labelcolor": INK,
    "grid.color": GRID, "grid.linewidth": 0.6, "axes.axisbelow": True,
    "axes.prop_cycle": matplotlib.cycler(color=SERIES),
    "figure.facecolor": "none", "axes.facecolor": "none", "savefig.facecolor": "none",
    "legend.facecolor": GROUND, "legend.edgecolor": GRID, "legend.framealpha": 0.9,
    "hatch.color": GROUND, "hatch.linewidth": 1.0,
    "axes.spines.top": False, "axes.spines.right": False,
    "font.sans-serif": ["DejaVu Sans"], "font.size": 8.5, "axes.labelsize": 8.5,
    "axes.titlesize": 9, "xtick.labelsize": 8, "ytick.labelsize": 8, "legend.fontsize": 8,
    "lines.linewidth": 1.4, "lines.markersize": 4,
}

COORDINATES = {"d", "x", "y", "width", "height", "transform"}
SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
ElementTree.register_namespace("", SVG)
ElementTree.register_namespace("xlink", XLINK)


def line(label, colour, **more):
    """An entry of a legend: (label, handle)."""
    return label, Line2D([], [], color=colour, **more)


def dot(label, colour, **more):
    return line(label, colour, **{"linestyle": "none", "marker": "o", **more})


def patch(label, colour, **more):
    return label, Patch(**{"facecolor": colour, "linewidth": 0, **more})


@contextlib.contextmanager
def _style(chart):
    """All that is drawn within looks alike, and equal charts give equal bytes."""
    with matplotlib.style.context(["default", STYLE, {"svg.hashsalt": chart.name, "pdf.fonttype": 42}]), \
            warnings.catch_warnings():
        # Letters that matplotlib's font lacks: in SVG they are the reader's, of PDF paper.py tells.
        warnings.filterwarnings("ignore", "Glyph ")
        yield


def _drawn(chart, canvas):
    """The chart as bytes of the canvas's format."""
    with _style(chart):
        figure = Figure(figsize=SIZE_IN, layout="constrained")
        canvas(figure)
        chart.draw(figure)
        file = io.BytesIO()
        if canvas is FigureCanvasSVG:
            figure.canvas.print_svg(file, metadata={"Date": None})  # savefig() draws everything twice
        else:
            figure.canvas.print_pdf(file, metadata={"CreationDate": None})
    return file.getvalue()


class Drawing(Figure):
    """A chart as a matplotlib figure on white, which a notebook shows without pyplot."""

    def __init__(self, chart):
        with _style(chart):
            super().__init__(figsize=SIZE_IN, layout="constrained", facecolor=GROUND)
            FigureCanvasAgg(self)
            self.chart = chart
            chart.draw(self)

    def _repr_png_(self):
        file = io.BytesIO()
        with _style(self.chart):
            self.savefig(file, format="png", dpi=SHARP, facecolor=GROUND)
        width, height = (round(inches * SHARP / 2) for inches in self.get_size_inches())
        return file.getvalue(), {"width": width, "height": height}


def pdf(chart):
    """The bytes of a PDF file with the drawing."""
    from matplotlib.backends.backend_pdf import FigureCanvasPdf  # pages need none
    return _drawn(chart, FigureCanvasPdf)


def _render(chart):
    """The root element of the chart's SVG."""
    root = ElementTree.fromstring(_drawn(chart, FigureCanvasSVG))
    for metadata in root.findall(f"{{{SVG}}}metadata"):
        root.remove(metadata)
    _slim(root)
    return root


def _slim(root):
    """Halves the size: coordinates in hundredths of a point, no empty groups, no indentation."""
    for element in root.iter():
        for key in COORDINATES.intersection(element.attrib):
            element.set(key, re.sub(r"-?\d+\.\d{3,}", lambda hit: f"{float(hit[0]):.2f}",
                                    element.get(key)))
        if not (element.text or "").strip():
            element.text = None
        element.tail = "\n"
    for parent in list(root.iter())[::-1]:  # the innermost first
        for group in parent.findall(f"{{{SVG}}}g"):
            if len(group) == 0:
                parent.remove(group)


def _own_ids(root, prefix):
    """Replaces the ids that are used by `prefix` and a number, since a page holds many drawings and
    matplotlib derives some ids from addresses in memory; removes the others."""
    used = set()
    for element in root.iter():
        used.update(*(re.findall(r"url\(#([^)]+)\)", value) for value in element.attrib.values()))
        used.add(element.get(f"{{{XLINK}}}href", "").lstrip("#"))
    own = {}
    for element in root.iter():
        name = element.attrib.pop("id", None)
        if name in used:
            own[name] = f"{prefix}{len(own)}"
            element.set("id", own[name])
    for element in root.iter():
        for key, value in element.attrib.items():
            value = re.sub(r"url\(#([^)]+)\)", lambda hit: f"url(#{own[hit[1]]})", value)
            element.set(key, f"#{own[value[1:]]}" if key == f"{{{XLINK}}}href" else value)


VARIABLES = {light: f"var(--{name})" for name, (light, _) in COLOURS.items()}
VARIABLES["#000000"] = VARIABLES[INK]


def _adapt(element):
    """Adapts an element to a page: no namespaces, colours by variable, the page's font."""
    element.tag = element.tag.rpartition("}")[2]
    for key in list(element.attrib):
        value = element.attrib.pop(key)
        value = re.sub(r"#[0-9a-f]{6}\b", lambda hit: VARIABLES.get(hit[0], hit[0]), value)
        if key == "style":
            value = re.sub(r"(font:[^;]*?px) [^;]*", r"\1 var(--font)", value)
        element.set(key.rpartition("}")[2], value)


def _describe(root, chart):
    for key in ("width", "height", "version"):
        root.attrib.pop(key, None)
    root.set("role", "img")
    root.set("aria-label", f"{chart.title}. {chart.caption}")


def _join(root, where):
    """Makes a drawing part of a page, whose drawings `where` distinguishes."""
    _own_ids(root, f"c{hashlib.sha256(where.encode()).hexdigest()[:8]}-")
    for element in list(root.iter()):
        for style in element.findall(f"{{{SVG}}}style"):  # it would apply to the whole page
            element.remove(style)
    for element in root.iter():
        _adapt(element)


def _boxed(root):
    """HTML of the drawing in a box that scrolls on a narrow screen, by keyboard, too."""
    return f'<div class="drawing" tabindex="0">{ElementTree.tostring(root, encoding="unicode")}</div>'


def inline_svg(chart, where=""):
    """HTML of the chart's drawing. `where` distinguishes charts of the same name in one page."""
    root = _render(chart)
    _join(root, f"{where} {chart.name}")
    _describe(root, chart)
    return _boxed(root)


def kept_svg(path, where):
    """(HTML of a drawing that standalone_svg() wrote; its title and caption)."""
    root = ElementTree.parse(path).getroot()
    for rect in root.findall(f"{{{SVG}}}rect")[:1]:  # the ground, which the page has
        root.remove(rect)
    _join(root, where)
    return _boxed(root), root.get("aria-label", "")


def standalone_svg(chart):
    """The text of a separate file, in plain colours on white."""
    root = _render(chart)
    _own_ids(root, "i")
    _describe(root, chart)
    root.insert(0, ElementTree.Element(f"{{{SVG}}}rect", width="100%", height="100%", fill=GROUND))
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _variables(side):
    return " ".join(f"--{name}: {pair[side]};" for name, pair in COLOURS.items())


CSS = f"""\
:root {{ color-scheme: light dark; --font: system-ui, sans-serif; {_variables(0)}
  --better: var(--{BETTER_NAME}); --worse: var(--{WORSE_NAME}); }}
@media (prefers-color-scheme: dark) {{ :root {{ {_variables(1)} }} }}
@media print {{ :root {{ color-scheme: light; {_variables(0)} }} }}
.drawing svg {{ display: block; width: 100%; height: auto; fill: var(--ink); overflow: visible; }}
.drawing svg * {{ stroke-linejoin: round; stroke-linecap: butt; }}
@media screen and (max-width: 760px) {{
  .drawing {{ overflow: auto hidden; }}
  .drawing svg {{ min-width: 45rem; }}
}}
"""
