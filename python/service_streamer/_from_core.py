# ruff: noqa: F401 - the core uses them
"""All Python code that the core calls by a name, and the exceptions that it raises.

`cpp/bindings/python/from_core.h` has the same names. The core looks them up here, once.
"""

from __future__ import annotations

from . import _core
from ._base.errors import (
    CancelledError,
    OutputSizeMismatch,
    QueueFull,
    RequestTimeout,
    StreamerClosed,
    WorkerLost,
)
from ._base.messages import closed, see
from ._base.messages import short as short_text
from ._base.model_errors import copy_error, for_callers
from ._engine.future import notify_waiters, run_callback
from ._engine.outputs import batch_remedy, in_order, join_outputs, parts_in_order, rebuilt
from ._engine.outputs import check as check_outputs
from ._engine.outputs import cut as cut_outputs
from ._engine.outputs import rows as output_rows
from ._engine.pickling import (
    as_array,
    dropped,
    dumps,
    expired,
    pack_error,
    refuse_answer,
    refuse_input,
    refuse_item,
    refuse_output,
    unpack_error,
    unread,
)
from ._processes.init_failure import error_of as init_error
from ._waiting.callbacks import start as start_callbacks
from ._waiting.greenlets import in_event_loop, open_waits

# These are rarely called, so their modules are imported by the first call.


def import_obstacle() -> str:
    """Call `imports.obstacle`."""
    from ._waiting import imports

    return imports.obstacle()


def warn_of_import() -> None:
    """Call `imports.warn`."""
    from ._waiting import imports

    imports.warn()


def warn_in_coroutine() -> None:
    """Call `coroutines.warn`."""
    from ._waiting import coroutines

    coroutines.warn()


_core.look_up(globals())
