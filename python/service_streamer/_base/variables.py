"""The variables that a function refers to."""

from __future__ import annotations

import contextlib
from types import FunctionType
from typing import Any


def variables_of(function: FunctionType) -> dict[str, Any]:
    """Return the globals that a function uses, and the variables of the functions around it.

    By name. A variable that has no value yet is left out.
    """
    code, known = function.__code__, function.__globals__
    used = {name: known[name] for name in code.co_names if name in known}
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # the cell is empty
            used[name] = cell.cell_contents
    return used
