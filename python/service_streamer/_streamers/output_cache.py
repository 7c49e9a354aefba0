"""IPython's cache of outputs, which must not keep a streamer that a notebook has replaced."""

from __future__ import annotations

import sys
import weakref
from typing import Any


class _WeakStreamer:
    """Stands for a streamer in the cache. It does not keep the streamer alive.

    As `weakref.proxy`, which a ``with`` statement refuses.
    """

    def __init__(self, streamer: Any) -> None:
        self._reference = weakref.ref(streamer)

    def _streamer(self) -> Any:
        streamer = self._reference()
        if streamer is None:
            raise ReferenceError("this streamer was replaced, so it is closed")
        return streamer

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        streamer = self._reference()
        return _WeakStreamer if streamer is None else type(streamer)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._streamer(), name)

    def __repr__(self) -> str:
        return repr(self._reference())

    def __enter__(self) -> Any:
        return self._streamer().__enter__()

    def __exit__(self, *raised: Any) -> None:
        streamer = self._reference()
        if streamer is not None:  # else it has been closed
            streamer.__exit__(*raised)


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
    proxy = _WeakStreamer(streamer)
    for place in (names, names["_oh"], shell.user_ns_hidden, vars(shell.displayhook)):
        for name, value in list(place.items()):
            if value is streamer and _is_of_cache(name):
                place[name] = proxy


def _is_of_cache(name: str | int) -> bool:
    """Return True for a key of ``Out``, and for ``_``, ``__``, ``___`` and ``_5``."""
    return not str(name).strip("_0123456789")
