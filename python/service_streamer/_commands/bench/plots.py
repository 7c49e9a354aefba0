"""Line plots as inline SVG, for a page whose style has the colours."""

from __future__ import annotations

import dataclasses
import html
import math
from collections.abc import Callable, Sequence

WIDTH, HEIGHT = 430, 288
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 22, 48, 44


@dataclasses.dataclass(frozen=True)
class Line:
    """One line of a plot: its name and (x, y, half of the confidence interval of y)."""

    name: str
    points: Sequence[tuple[float, float, float]]


@dataclasses.dataclass(frozen=True)
class Axis:
    """The scale of one direction, and where its ticks are."""

    label: str
    low: float
    high: float
    ticks: Sequence[float]
    logarithmic: bool
    text: Callable[[float], str]

    def at(self, value: float) -> float:
        """Return the position of a value, from 0 to 1."""
        if self.logarithmic:
            value, low, high = (math.log(max(v, 1e-12)) for v in (value, self.low, self.high))
        else:
            low, high = self.low, self.high
        return (value - low) / (high - low)


def linear(label: str, values: Sequence[float], text: Callable[[float], str]) -> Axis:
    """Return an axis from 0 with round ticks."""
    most = max([*values, 0.0]) or 1.0
    raw = most / 5
    unit = 10.0 ** math.floor(math.log10(raw))
    step = unit * next(n for n in (1, 2, 2.5, 5, 10) if n * unit >= raw)
    count = math.ceil(most * 1.02 / step)
    return Axis(label, 0.0, step * count, [step * n for n in range(count + 1)], False, text)


def logarithmic(label: str, values: Sequence[float], text: Callable[[float], str]) -> Axis:
    """Return a logarithmic axis with the ticks 1, 2, 5, 10…"""
    low, high = min(values), max(values)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [n * 10.0**k for k in decades for n in (1, 2, 5)]
    first = max((t for t in ticks if t <= low), default=low)
    last = min((t for t in ticks if t >= high), default=high)
    inside = [t for t in ticks if first <= t <= last]
    while len(inside) > 8:
        inside = [t for t in inside if round(math.log10(t), 6).is_integer()] or inside[::2]
    return Axis(label, first, last if last > first else first * 2, inside, True, text)


def at_values(label: str, values: Sequence[float]) -> Axis:
    """Return a logarithmic axis whose ticks are the values themselves."""
    ordered = sorted(set(values))
    high = ordered[-1] if len(ordered) > 1 else ordered[0] * 2
    return Axis(label, ordered[0], high, ordered, True, lambda value: f"{value:g}")


def plot(
    title: str,
    x: Axis,
    y: Axis,
    lines: Sequence[Line],
    mark: tuple[float, str] | None = None,
    style: str = "",
) -> str:
    """Return an SVG image.

    Args:
        title: above the plot.
        x, y: the axes.
        lines: at most four.
        mark: the position of a vertical line, and its label.
        style: the rules of an image that is a file of its own.
    """
    file = 'xmlns="http://www.w3.org/2000/svg" ' if style else ""
    parts = [f"<style>{style}</style>" if style else "", _grid(x, y)]
    if mark is not None:
        at = _x(x, mark[0])
        anchor = "end" if x.at(mark[0]) > 0.5 else "start"
        shift = -5 if anchor == "end" else 5
        parts.append(
            f'<line class="mark" x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP}" y2="{HEIGHT - _BOTTOM}"/>'
            f'<text class="faint" x="{at + shift:.1f}" y="{_TOP + 11}" text-anchor="{anchor}">'
            f"{html.escape(mark[1])}</text>"
        )
    parts += [_line(x, y, line, number) for number, line in enumerate(lines)]
    if len(lines) > 1:
        parts.append(_legend(lines))
    return (
        f'<svg {file}viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{html.escape(title)}">'
        f'<text class="title" x="{_LEFT}" y="16">{html.escape(title)}</text>{"".join(parts)}</svg>'
    )


def _x(axis: Axis, value: float) -> float:
    return _LEFT + axis.at(value) * (WIDTH - _LEFT - _RIGHT)


def _y(axis: Axis, value: float) -> float:
    at = min(max(axis.at(value), 0.0), 1.0)
    return HEIGHT - _BOTTOM - at * (HEIGHT - _TOP - _BOTTOM)


def _grid(x: Axis, y: Axis) -> str:
    bottom, right = HEIGHT - _BOTTOM, WIDTH - _RIGHT
    parts = []
    for tick in y.ticks:
        at = _y(y, tick)
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}"/>'
            f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{y.text(tick)}</text>'
        )
    for tick in x.ticks:
        at = _x(x, tick)
        parts.append(
            f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{bottom}" y2="{bottom + 4}"/>'
            f'<text x="{at:.1f}" y="{bottom + 16}" text-anchor="middle">{x.text(tick)}</text>'
        )
    middle = (_LEFT + right) / 2
    parts.append(
        f'<text class="faint" x="{middle}" y="{HEIGHT - 8}" text-anchor="middle">'
        f"{html.escape(x.label)}</text>"
        f'<text class="faint" x="{right}" y="16" text-anchor="end">{html.escape(y.label)}</text>'
    )
    return "".join(parts)


def _line(x: Axis, y: Axis, line: Line, number: int) -> str:
    shown = [(_x(x, a), b, half) for a, b, half in line.points if not math.isnan(b)]
    path = " ".join(f"{a:.1f},{_y(y, b):.1f}" for a, b, _ in shown)
    parts = [f'<polyline class="line{number}" points="{path}"/>']
    for a, b, half in shown:
        if not math.isnan(half):
            ends = f'y1="{_y(y, b - half):.1f}" y2="{_y(y, b + half):.1f}"'
            parts.append(f'<line class="half{number}" x1="{a:.1f}" x2="{a:.1f}" {ends}/>')
        parts.append(f'<circle class="dot{number}" cx="{a:.1f}" cy="{_y(y, b):.1f}" r="3"/>')
    return "".join(parts)


def _legend(lines: Sequence[Line]) -> str:
    parts = []
    at = _LEFT + 4
    for number, line in enumerate(lines):
        parts.append(
            f'<circle class="dot{number}" cx="{at}" cy="{_TOP - 18}" r="4"/>'
            f'<text x="{at + 8}" y="{_TOP - 14}">{html.escape(line.name)}</text>'
        )
        at += 24 + 7 * len(line.name)
    return "".join(parts)
