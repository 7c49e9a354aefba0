"""An SVG drawing of boxes, texts and arrows, in one style.

A drawing has a background of its own, light or dark as the reader's system is. So it can be read
on any page.
"""

from __future__ import annotations

from html import escape

STYLE = """
  svg { --back: #ffffff; --ink: #1f2937; --soft: #6b7280; --line: #9ca3af; --group: #f3f4f6;
    --app: #dbeafe; --engine: #fef3c7; --model: #dcfce7; --broker: #fee2e2; }
  @media (prefers-color-scheme: dark) {
    svg { --back: #111827; --ink: #f3f4f6; --soft: #9ca3af; --line: #6b7280; --group: #1f2937;
      --app: #1e3a8a; --engine: #78350f; --model: #14532d; --broker: #7f1d1d; }
  }
  text { font: 14px system-ui, "Segoe UI", Helvetica, Arial, sans-serif; fill: var(--ink); }
  .title { font-weight: 600; } .soft { fill: var(--soft); font-size: 13px; }
  .code { font: 13px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }
  .back { fill: var(--back); }
  rect { stroke: var(--line); } .back { stroke: none; }
  .group { fill: var(--group); } .app { fill: var(--app); } .engine { fill: var(--engine); }
  .model { fill: var(--model); } .broker { fill: var(--broker); }
  .arrow { fill: none; stroke: var(--ink); stroke-width: 1.5; marker-end: url(#head); }
  .rule { fill: none; stroke: var(--line); } .head { fill: var(--ink); }
  .step { fill: var(--ink); } .number { fill: var(--back); font-size: 13px; font-weight: 600; }
  .dash { stroke-dasharray: 3 3; }
"""
LINE = 19  # pixels between two lines of text


class Drawing:
    """One picture, in pixels from the top left corner. `about` describes it in words."""

    def __init__(self, width: int, height: int, about: str):
        self.width, self.height, self.about = width, height, about
        self.parts: list[str] = []

    def text(self, x: float, y: float, text: str, kind: str = "", anchor: str = "middle") -> None:
        """Write one line whose baseline is at y."""
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}">{escape(text)}</text>'
        )

    def box(self, x: float, y: float, width: float, height: float, kind: str, *lines: str) -> None:
        """Draw a rectangle with lines of text in its middle."""
        place = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
        self.parts.append(f'<rect {place} rx="4" class="{kind}"/>')
        first = y + height / 2 - (len(lines) - 1) * LINE / 2 + 5
        for number, line in enumerate(lines):
            self.text(x + width / 2, first + number * LINE, line)

    def group(self, x: float, y: float, width: float, height: float, title: str) -> None:
        """Draw a rectangle for a process or a machine, with its name at the top left."""
        self.box(x, y, width, height, "group")
        self.text(x + 10, y + 19, title, "soft", "start")

    def arrow(self, *points: tuple[float, float]) -> None:
        """Draw a line through the points, with its head at the last one."""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        self.parts.append(f'<polyline points="{path}" class="arrow"/>')

    def rule(self, *points: tuple[float, float], kind: str = "") -> None:
        """Draw a thin line through the points."""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        self.parts.append(f'<polyline points="{path}" class="rule {kind}"/>')

    def step(self, number: int, x: float, y: float) -> None:
        """Draw the number of a step, which the text beside the picture explains."""
        self.parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="10" class="step"/>')
        self.text(x, y + 4.5, str(number), "number")

    def svg(self) -> str:
        """Return the whole file."""
        size = (
            f'viewBox="0 0 {self.width} {self.height}" width="{self.width}" height="{self.height}"'
        )
        about = escape(self.about)
        marker = 'id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7"'
        arrow = '<path d="M0,0 L8,4 L0,8 z" class="head"/>'
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{about}">',
            f"<style>{STYLE}</style>",
            f'<defs><marker {marker} orient="auto">{arrow}</marker></defs>',
            f'<rect width="{self.width}" height="{self.height}" rx="8" class="back"/>',
            *self.parts,
            "</svg>",
        ]
        return "\n".join(lines) + "\n"
