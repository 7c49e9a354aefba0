"""The targets of `slo=`: the rows of the table."""

from __future__ import annotations

from measurements import PLAIN

from .figures import Figure, Row, at_least, informative


def row(name: str, case: str, good: float) -> Row:
    return Row(
        f"{name}, slo 50 ms; answers in time / goodput / refused",
        f"≥ 0.99 / ≥ {good:g}",
        (
            Figure(case, "in_time", "x", at_least(0.99)),
            Figure(case, "goodput", "x", at_least(good)),
            Figure(case, "refused", "x", informative),
        ),
        (PLAIN,),
    )


SLO_ROWS: tuple[Row, ...] = (
    row("model, 80 % of the capacity", "slo-80", 0.95),
    row("model, 130 % of the capacity", "slo-130", 0.9),
    row("the same with 2 worker processes, 80 %", "slo-processes-80", 0.95),
    row("the same with 2 worker processes, 130 %", "slo-processes-130", 0.9),
)
