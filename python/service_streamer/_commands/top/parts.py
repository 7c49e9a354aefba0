"""What both views are made of."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

LABEL = 11  # columns of the labels on the left
NARROW = 70  # columns below which details are left out


def line(label: str, *parts: str | Text) -> Text:
    """Return a line with a label on the left."""
    text = Text(f"{label:<{LABEL}}", style="dim", no_wrap=True, overflow="ellipsis")
    for part in parts:
        text.append_text(part if isinstance(part, Text) else Text(part, style="not dim"))
    return text


def rate(value: float) -> str:
    """Return a rate with two digits or more."""
    return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.2g}"


def bar(share: float, width: int, style: str) -> Text:
    """Return a bar that is filled to a share of its width."""
    filled = round(max(0.0, min(share, 1.0)) * width)
    text = Text("█" * filled, style=f"not dim {style}")
    return text.append("░" * (width - filled), style="dim")


def bar_width(width: int) -> int:
    """Return the width of bars in a terminal of that width."""
    return max(6, min(40, width - LABEL - 34))


def table(headings: Sequence[str], rows: Sequence[Sequence[str | Text]], left: int = 1) -> Table:
    """Return a table without lines; all but the first columns are aligned to the right."""
    made = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for i, heading in enumerate(headings):
        made.add_column(heading, justify="left" if i < left else "right", no_wrap=True)
    for row in rows:
        made.add_row(*row)
    return made
