"""Counts, durations and sizes as people read them."""

from __future__ import annotations


def count(n: int, singular: str, plural: str | None = None) -> str:
    """Return a number with its noun."""
    return f"{n:,} {singular if n == 1 else plural or singular + 's'}"


def duration(seconds: float) -> str:
    """Return a short duration in s, ms or µs."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return "0 s" if seconds == 0 else f"{seconds * 1e6:.3g} µs"


def age(seconds: float) -> str:
    """Return a long duration in its two largest units."""
    units = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
    left = int(seconds)
    parts: list[str] = []
    for unit, size in units:
        n, left = divmod(left, size)
        if n or parts:
            parts.append(f"{n} {unit}")
    return " ".join(parts[:2]) or "0 s"


def memory(size: int) -> str:
    """Return a number of bytes as people read it."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size} bytes"
