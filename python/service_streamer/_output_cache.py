"""IPython's cache of outputs, which must not keep a streamer that a notebook has replaced."""

from __future__ import annotations

import sys
import weakref
from typing import Any


def hold_weakly(streamer: Any) -> None:
    """Make the cache hold a streamer weakly, once the cell that shows it has run.

    Otherwise each run of a cell that makes a streamer and shows it would leave workers behind:
    ``Out`` keeps what it shows until the kernel ends. A streamer that no variable refers to stays
    in the cache as it is.
    """
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None:
        return
    reference = weakref.ref(streamer)

    def replace(result: Any) -> None:
        shell.events.unregister("post_run_cell", replace)
        shown = reference()
        if shown is not None and result.result is shown:
            _replace(shell, shown)

    shell.events.register("post_run_cell", replace)


def _replace(shell: Any, streamer: Any) -> None:
    names = shell.user_ns
    if all(_is_of_cache(name) for name, value in names.items() if value is streamer):
        return
    proxy = weakref.proxy(streamer)
    for place in (names, names["_oh"], shell.user_ns_hidden, vars(shell.displayhook)):
        for name, value in list(place.items()):
            if value is streamer and _is_of_cache(name):
                place[name] = proxy


def _is_of_cache(name: str | int) -> bool:
    """Return True for a key of ``Out``, and for ``_``, ``__``, ``___`` and ``_5``."""
    return not str(name).strip("_0123456789")
