"""Where things stand in a figure: title, caption, panels side by side, names at the ends of lines, a legend.

Measured in inches, so type and spacing stay the same for one panel or five. Knows no data; looks come from style.py.
"""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis import style

PANEL_WIDTH, LONE_PANEL_WIDTH, PANEL_HEIGHT = 4.1, 5.4, 3.3
LEFT, RIGHT, GAP, FOOT = 0.72, 0.25, 0.42, 0.56
HEAD, TITLE_LINE, CAPTION_LINE, PANEL_TITLE, LEGEND_LINE = 0.16, 0.24, 0.16, 0.44, 0.24
# Widths of a character, on the generous side: the exact ones are known only after drawing.
NAME_CHARACTER, CAPTION_CHARACTER, TITLE_CHARACTER = 0.088, 0.068, 0.125
LEGEND_HANDLE = 0.62
NAME_GAP = 0.058  # least distance of two names at line ends, as a share of the panel's height


def canvas(
    columns: int,
    *,
    title: str,
    caption: Sequence[str],
    names: Sequence[str],
    names_beside: bool,
    strip: float = 0.2,
) -> tuple[Figure, list[tuple[Axes, Axes]]]:
    """A figure with `columns` panels, each over a strip of `strip` times its height; returns (panel, strip) pairs.

    `caption` is set as one text, broken to the width between its parts where possible. `names` of the lines get room to
    the right of the last panel if `names_beside`, else a legend below.
    """
    names = [style.drawable(name) for name in names]
    panel = PANEL_WIDTH if columns > 1 else LONE_PANEL_WIDTH
    right = 0.35 + NAME_CHARACTER * max(map(len, names)) if names_beside else RIGHT
    width = LEFT + columns * panel + (columns - 1) * GAP + right
    inner = width - LEFT - RIGHT
    heading = textwrap.wrap(style.drawable(title), int(inner / TITLE_CHARACTER))
    lines = _broken(caption, int(inner / CAPTION_CHARACTER))
    per_row = max(1, int(inner / (LEGEND_HANDLE + NAME_CHARACTER * max(map(len, names)))))
    foot = FOOT if names_beside else FOOT + LEGEND_LINE * (0.4 + -(-len(names) // per_row))
    below_title = HEAD + TITLE_LINE * len(heading) + 0.06
    head = below_title + CAPTION_LINE * len(lines) + PANEL_TITLE
    height = head + PANEL_HEIGHT * (1 + strip) + foot
    figure = Figure(figsize=(width, height))
    text: dict[str, Any] = {"x": LEFT / width, "va": "top", "linespacing": 1.25}
    figure.text(y=1 - HEAD / height, s="\n".join(heading), size=13, weight="bold", **text)
    figure.text(y=1 - below_title / height, s="\n".join(lines), size=8.8, color=style.FAINT, **text)
    grid = figure.add_gridspec(
        2,
        columns,
        height_ratios=(1, strip),
        hspace=0.16,
        wspace=GAP / panel,
        left=LEFT / width,
        right=1 - right / width,
        top=1 - head / height,
        bottom=foot / height,
    )
    if not names_beside:
        _legend(figure, names, min(per_row, len(names)))
    return figure, [(figure.add_subplot(grid[0, at]), figure.add_subplot(grid[1, at])) for at in range(columns)]


def name_ends(axes: Axes, ends: Mapping[str, float]) -> None:
    """Names, in order of position, to the right of where their lines end, in their colours and clear of each other."""
    low, high = axes.get_ylim()
    heights = spread([(end - low) / (high - low) for end in ends.values()], NAME_GAP)
    place: dict[str, Any] = {"transform": axes.transAxes, "clip_on": False}
    for position, (name, height) in enumerate(zip(ends, heights, strict=True)):
        colour = style.colour(position)
        axes.plot([1.03], [height], color=colour, marker=style.marker(position), linestyle="none", **place)
        axes.text(1.055, height, style.drawable(name), color=colour, va="center_baseline", **place)


def spread(positions: Sequence[float], gap: float) -> list[float]:
    """Positions moved as little as it takes for any two to be `gap` apart, in the same order; for labels."""
    order = sorted(range(len(positions)), key=lambda index: positions[index])
    blocks: list[list[float]] = []  # sum of wanted centres, number of labels: a block's labels stand gap by gap
    for index in order:
        blocks.append([positions[index], 1])
        while len(blocks) > 1 and _top(blocks[-2], gap) + gap > _bottom(blocks[-1], gap):
            total, count = blocks.pop()
            blocks[-1] = [blocks[-1][0] + total, blocks[-1][1] + count]
    placed = [_bottom(block, gap) + gap * step for block in blocks for step in range(int(block[1]))]
    moved = dict(zip(order, placed, strict=True))
    return [moved[index] for index in range(len(positions))]


def _bottom(block: list[float], gap: float) -> float:
    return block[0] / block[1] - gap * (block[1] - 1) / 2


def _top(block: list[float], gap: float) -> float:
    return block[0] / block[1] + gap * (block[1] - 1) / 2


def _legend(figure: Figure, names: Sequence[str], per_row: int) -> None:
    lines = [Line2D([], [], color=style.colour(at), marker=style.marker(at)) for at in range(len(names))]
    figure.legend(lines, list(names), loc="lower center", ncols=per_row)


def _broken(parts: Sequence[str], columns: int) -> list[str]:
    """Lines of at most `columns` characters; a break falls between two parts unless one part alone is too long."""
    lines: list[str] = []
    for part in parts:
        joined = f"{lines[-1]}  ·  {part}" if lines else part
        if lines and len(joined) <= columns:
            lines[-1] = joined
        else:
            lines.extend(textwrap.wrap(part, columns))
    return lines
