"""Charts with lines: panels side by side under a legend, and which lines get a colour."""

import math
import textwrap

from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter, NullLocator

from . import figure

MOST = len(figure.SERIES)  # lines with a colour and a name
LEAST = 1e-60  # of the largest value: what a logarithmic axis can still reach
LEGEND_LINE_IN = 0.175
LEFT_IN, RIGHT_IN, TOP_IN, BOTTOM_IN = 0.68, 0.12, 0.24, 0.46  # around axes: labels, ticks, title


def named(things, first, order):
    """(those that get a colour, the others), both in their given order: `first` gets one, then
    those with the least order(thing)."""
    ranked = sorted(things, key=lambda thing: (thing is not first, order(thing)))
    chosen = {id(thing) for thing in ranked[:MOST]}
    return ([thing for thing in things if id(thing) in chosen],
            [thing for thing in things if id(thing) not in chosen])


def apart(ticks, most, log):
    """Of {place: text} those, at most `most`, that are far enough from each other on an axis of all."""
    at = {place: math.log(place) if log else place for place in sorted(ticks)}
    least, kept = (max(at.values()) - min(at.values())) / most, []
    for place in at:
        if not kept or at[place] - at[kept[-1]] > least:
            kept.append(place)
    return {place: ticks[place] for place in kept}


def hollow(cells):
    """The legend's entry for points of oversubscribed runs, if any cell has some."""
    return [figure.dot("oversubscribed *", figure.FAINT, markerfacecolor=figure.GROUND)] \
        if any(cell.oversubscribed for cell in cells) else []


def entries(named, others, **more):
    """The legend's entries of things with a label: those with a name, and one for all others."""
    found = [figure.line(thing.label, figure.SERIES[i], **more) for i, thing in enumerate(named)]
    return found + [figure.line(f"{len(others)} others", figure.FAINT, linewidth=0.7)
                    ] * bool(others)


def coloured(named, others):
    """(line, colour, whether it has a name), those without a name first."""
    return [(thing, figure.FAINT, False) for thing in others] + \
        [(thing, figure.SERIES[i], True) for i, thing in enumerate(named)]


def point(ax, x, interval, cell, colour):
    """A dot, hollow if the cell's runs were oversubscribed, with its interval as a line."""
    if interval.low is not None:
        ax.plot([x, x], [interval.low, interval.high], color=colour, linewidth=1, zorder=3)
    if interval.value is not None:
        ax.plot(x, interval.value, "o", color=colour, zorder=4,
                markerfacecolor=figure.GROUND if cell.oversubscribed else colour)


def panels(fig, count, entries, height_in=2.7):
    """Axes for `count` plots, side by side under a legend of the entries [(label, handle)]; sets the figure's
    height."""
    width = fig.get_size_inches()[0]
    longest = max((len(label) for label, _ in entries), default=0)
    columns = max(1, min(3, len(entries), int(width / (0.5 + 0.068 * min(longest, 48)))))
    wrap = max(16, int((width / columns - 0.45) / 0.062))
    labels = [textwrap.wrap(label, wrap)[:2] for label, _ in entries]
    lines = sum(max(map(len, labels[i:i + columns])) for i in range(0, len(entries), columns))
    legend_in = lines * LEGEND_LINE_IN + 0.08 if entries else 0.02
    height = legend_in + height_in
    fig.set_layout_engine("none")  # the axes are placed here, which is far quicker
    fig.set_size_inches(width, height)
    if entries:
        fig.legend([handle for _, handle in entries], list(map("\n".join, labels)),
                   loc="upper left", ncol=columns, frameon=False, borderaxespad=0.2,
                   columnspacing=1.2, labelspacing=0.35, handlelength=1.8, bbox_to_anchor=(0, 1))
    each = (width - RIGHT_IN) / count - LEFT_IN
    axes = []
    for i in range(count):
        axes.append(fig.add_axes([
            (i * (LEFT_IN + each) + LEFT_IN) / width, BOTTOM_IN / height, each / width,
            (height_in - TOP_IN - BOTTOM_IN) / height]))
        axes[-1].grid(True)
    return axes


EDGE = 0.75  # of the axes: a figure beside a point beyond it would leave the chart
FIGURE_PT = 7.5  # letters of a figure
BOX_PT = 0.66 * FIGURE_PT, 1.35 * FIGURE_PT  # a letter of it in the widest of readers' fonts


def figure_at(ax, x, y, text, across=5, up=0, **more):
    """The figure of a bar or point at a place in units of the axes' data, so many points to the right
    of it and above."""
    ax.annotate(text, (x, y), (across, up), textcoords="offset points", annotation_clip=False,
                **{"va": "center", "ha": "left", "color": figure.INK, "fontsize": FIGURE_PT,
                   "gid": "figure", "zorder": 7, **more})


def place_of(ax, x, y):
    """A place in units of the axes' data, as shares of the axes, and both of their sizes in points."""
    ax.get_xlim()  # or matplotlib would still owe the axes the limits that their data ask for
    width, height = ax.get_window_extent().size * 72 / ax.figure.dpi
    return (*ax.transAxes.inverted().transform(ax.transData.transform((x, y))), width, height)


def figure_above(ax, x, y, text):
    """The figure of a point, which must not leave the chart at either side."""
    across = place_of(ax, x, y)[0]
    figure_at(ax, x, y, text, 0, 4, va="bottom",
              ha="left" if across < 1 - EDGE else "right" if across > EDGE else "center")


def figures_at(ax, points):
    """Figures beside points [(x, y, text)], without those that would overlap an earlier one."""
    placed = []
    for x, y, text in points:
        across, up, width, height = place_of(ax, x, y)
        right = across > EDGE
        left, bottom, wide = across * width, up * height, BOX_PT[0] * len(text)
        left += -4 - wide if right else 4
        if not (0 <= across <= 1 and 0 <= up <= 0.97) or any(
                left < other + more and other < left + wide and abs(bottom - lower) < BOX_PT[1]
                for other, lower, more in placed):
            continue
        placed.append((left, bottom, wide))
        figure_at(ax, x, y, text, -4 if right else 4, 2, va="bottom", ha="right" if right else "left")


def few_ticks(axis, most=5):
    axis.set_major_locator(MaxNLocator(most))


def spread(values):
    """The largest of the positive values divided by the least."""
    positive = [value for value in values if value and value > 0]
    return max(positive) / min(positive) if positive else 1


def axis(ax, which, values, log, room=1.05, most=6):
    """A logarithmic axis over the values, or one from 0."""
    if log:
        log_axis(ax, which, values, most)
    else:
        getattr(ax, f"set_{which}lim")(0, max(values) * room)


def log_ticks(low, high, most):
    """Round numbers for a logarithmic axis: as many as fit, only decades if necessary."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for digits in ((1, 2, 5), (1, 3), (1,)):
        ticks = [digit * 10.0**power for power in range(first, last + 1) for digit in digits]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) <= most:
            return ticks
    return ticks[::math.ceil(len(ticks) / most)]


def log_axis(ax, which, values, most=6, labels=None):
    """Makes an axis logarithmic over the values, with plain numbers at its ticks, or with `labels`,
    {value: text}."""
    values = [value for value in values if value and value > 0]
    high = max(values)
    low = max(min(values), high * LEAST)
    room = (high / low) ** 0.06 if high > low else 1.3
    low, high = low / room, high * room
    getattr(ax, f"set_{which}scale")("log")
    getattr(ax, f"set_{which}lim")(low, high)
    axis = getattr(ax, f"{which}axis")
    axis.set_major_locator(FixedLocator(sorted(labels) if labels else log_ticks(low, high, most)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(
        lambda value, _: labels.get(value, "") if labels else f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
