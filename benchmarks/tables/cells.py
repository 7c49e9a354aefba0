"""The cells of the tables: a number with its unit, a figure of each package, the gain."""

# ruff: noqa: RUF001 - the tables use typographic signs

from __future__ import annotations

from collections.abc import Sequence

from measurements import BARE, BROKER

from .figures import Figure, Results, Row

NONE = "–"


def number(value: float | None, unit: str) -> str:
    if value is None:
        return NONE
    if unit == "ms":
        return f"{value:.3f} ms" if value < 1 else f"{value:.2f} ms"
    if unit == "x":
        return f"{value:.2f}"
    if unit == "count":
        return f"{value:.3g}"
    if value >= 1e6:
        return f"{value / 1e6:.2f} M/s"
    return f"{value / 1e3:.1f} k/s" if value >= 1e4 else f"{value:,.0f}/s"


def joined(values: Sequence[float | None], figures: Sequence[Figure]) -> str:
    if all(value is None for value in values):
        return NONE
    pairs = zip(values, figures, strict=True)
    return " / ".join(f"{number(value, f.unit)} {f.label}".strip() for value, f in pairs)


def gain(figure: Figure, results: Results) -> str:
    """The improvement over the original, as a factor of latency or throughput."""
    ours, original = figure.our_value(results), figure.original_value(results)
    if not ours or not original:
        return NONE
    ratio = original / ours if figure.low else ours / original
    return f"{ratio:,.0f}×" if ratio >= 10 else f"{ratio:.2f}×"


def gains(row: Row, results: Results) -> str:
    shown = [gain(figure, results) for figure in row.figures]
    return NONE if set(shown) == {NONE} else " / ".join(shown)


def share_of(figure: Figure, limit: float | None, results: Results) -> str:
    """What ours reaches of a limit, for a latency the limit divided by ours."""
    ours = figure.our_value(results)
    if not ours or not limit:
        return NONE
    return f"{limit / ours if figure.low else ours / limit:.2f}×"


def peer_cell(row: Row, results: Results) -> str:
    cells = []
    for peer in row.peers:
        figures = [figure for figure in row.figures if not figure.is_ours_only]
        values = [results.get(figure.case, peer, figure.metric) for figure in figures]
        if any(value is not None for value in values):
            name = {BARE: "bare sleep", BROKER: "broker alone"}.get(peer, peer)
            share = f" (ours {share_of(figures[0], values[0], results)})" if peer == BROKER else ""
            cells.append(f"{name}: {joined(values, figures)}{share}")
    return "; ".join(cells) or NONE
