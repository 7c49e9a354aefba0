"""Draws random pictures of shapes, for training and for tests."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from PIL import Image, ImageDraw, ImageFilter

Point = tuple[float, float]
Color = tuple[int, int, int]

LARGE = 3  # draw this many times larger, then reduce, for smooth edges


def draw(name: str, rng: random.Random, width: int = 96, height: int = 96) -> Image.Image:
    """Draw a shape with random position, colours, size and rotation."""
    background, color = _two_colors(rng)
    picture = Image.new("RGB", (width * LARGE, height * LARGE), background)
    pen = ImageDraw.Draw(picture)
    radius = min(picture.size) * rng.uniform(0.22, 0.42)
    center = tuple(rng.uniform(radius, side - radius) for side in picture.size)
    turn = rng.uniform(0, 2 * math.pi)

    def at(angle: float, distance: float) -> Point:
        x, y = center
        return (
            x + radius * distance * math.cos(turn + angle),
            y + radius * distance * math.sin(turn + angle),
        )

    SHAPES[name](pen, at, color, background)
    picture = picture.resize((width, height), Image.Resampling.BOX)
    return picture.filter(ImageFilter.GaussianBlur(rng.uniform(0, 1)))


At = Callable[[float, float], Point]
Draw = Callable[[ImageDraw.ImageDraw, At, Color, Color], None]


def _disc(pen: ImageDraw.ImageDraw, at: At, distance: float, color: Color) -> None:
    pen.polygon([at(math.tau * i / 60, distance) for i in range(60)], fill=color)


def _circle(pen: ImageDraw.ImageDraw, at: At, color: Color, background: Color) -> None:
    _disc(pen, at, 1, color)


def _ring(pen: ImageDraw.ImageDraw, at: At, color: Color, background: Color) -> None:
    _disc(pen, at, 1, color)
    _disc(pen, at, 0.55, background)


def _polygon(corners: int) -> Draw:
    def polygon(pen: ImageDraw.ImageDraw, at: At, color: Color, background: Color) -> None:
        pen.polygon([at(math.tau * i / corners, 1) for i in range(corners)], fill=color)

    return polygon


def _star(pen: ImageDraw.ImageDraw, at: At, color: Color, background: Color) -> None:
    pen.polygon([at(math.tau * i / 10, 1 if i % 2 else 0.42) for i in range(10)], fill=color)


def _cross(pen: ImageDraw.ImageDraw, at: At, color: Color, background: Color) -> None:
    for quarter in (0, 1):
        middle = math.pi / 2 * quarter
        ends = [middle + side * 0.3 + half for half in (0, math.pi) for side in (-1, 1)]
        pen.polygon([at(angle, 1) for angle in ends], fill=color)


SHAPES: dict[str, Draw] = {
    "circle": _circle,
    "cross": _cross,
    "ring": _ring,
    "square": _polygon(4),
    "star": _star,
    "triangle": _polygon(3),
}


def _two_colors(rng: random.Random) -> tuple[Color, Color]:
    """Return two colours with enough contrast."""
    while True:
        first, second = ((rng.randrange(256), rng.randrange(256), rng.randrange(256)) for _ in "12")
        if sum(abs(a - b) for a, b in zip(first, second, strict=True)) > 150:
            return first, second
