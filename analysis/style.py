"""One look for all figures: colours, type, sizes, axes, and files that are the same bytes for the same data.

Knows no data. Colours: Okabe and Ito (2008), safe for colour-blind readers; position 0, usually the baseline, is grey.
"""

import functools
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator, PercentFormatter

PALETTE = ("#4D4D4D", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "<", ">", "P")
INK = "#222222"
FAINT = "#6B6B6B"
GRID = "#E3E3E3"
BAND_OPACITY = 0.14
DPI = 200
FONT = "DejaVu Sans"  # comes with matplotlib, so every machine draws the same

# Any: some versions of matplotlib type the names one by one, others as str.
LOOK: Any = {
    "font.family": FONT,
    "font.size": 9.5,
    "text.color": INK,
    "text.parse_math": False,  # titles and names are other people's words; a $ in them is a dollar
    "axes.labelcolor": INK,
    "axes.labelsize": 9.5,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": FAINT,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "lines.markeredgecolor": "white",
    "lines.markeredgewidth": 0.7,
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "svg.hashsalt": "streak",
}


def look() -> AbstractContextManager[None]:
    """The settings above for the length of a `with` block; drawing and saving both belong inside."""
    return mpl.rc_context(LOOK)


@functools.cache
def glyphs() -> frozenset[int]:
    """Code points that the font has, in both of the weights in use."""
    files = (findfont(FontProperties(family=FONT, weight=weight)) for weight in ("normal", "bold"))
    return frozenset.intersection(*(frozenset(get_font(file).get_charmap()) for file in files))


def drawable(text: str) -> str:
    """Other people's words on one line, as the font can draw them: a character that it lacks becomes <U+4E2D>.

    Not a box: two names stay two names. Not another font: every machine draws the same.
    """
    one_line = " ".join(text.split())
    return "".join(each if ord(each) in glyphs() else f"<U+{ord(each):04X}>" for each in one_line)


def colour(position: int) -> str:
    """Colour of the arm at this position of a study; repeats after eight."""
    return PALETTE[position % len(PALETTE)]


def marker(position: int) -> str:
    """Marker of the arm at this position of a study. Where the colours repeat, each has the next marker."""
    return MARKERS[(position + position // len(PALETTE)) % len(MARKERS)]


def seconds_axis(axes: Axes, budgets: Sequence[float]) -> None:
    """Logarithmic seconds with a tick at every budget and plain labels; one too close to the label before has none."""
    axes.set_xscale("log")
    low, high = min(budgets), max(budgets)
    margin = (high / low) ** 0.05 if high > low else 1.5
    axes.set_xlim(low / margin, high * margin)
    axes.xaxis.set_major_locator(FixedLocator(list(budgets)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels(sparse_labels(budgets))


def sparse_labels(budgets: Sequence[float], share: float = 0.075) -> list[str]:
    """Plain labels of ascending budgets; empty where the last label is nearer than `share` of the logarithmic axis."""
    step = (max(budgets) / min(budgets)) ** share
    labels, last = [], 0.0
    for budget in budgets:
        shown = budget >= last * step
        labels.append(f"{budget:g}" if shown else "")
        last = budget if shown else last
    return labels


def percent_axis(axes: Axes, low: float, high: float) -> None:
    """A y axis from low to high, both shares, labelled in percent."""
    axes.set_ylim(low, high)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10]))  # no 2.5: its labels would be rounded
    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1, decimals=0, symbol=" %"))


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write <name>.png and <name>.svg without a date or a version inside; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    png, svg = folder / f"{name}.png", folder / f"{name}.svg"
    figure.savefig(png, dpi=DPI, metadata={"Software": None})
    figure.savefig(svg, metadata={"Date": None, "Creator": None})
    return [png, svg]
