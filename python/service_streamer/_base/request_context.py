"""The context of a request: lines of bytes that travel with it to the process of its model.

The lines are those of `otel`, if the request has a sampled span, and ``stream:<reader>``, if its
outputs are read piece by piece. `_streams.hub.Address` describes the reader.
"""

from __future__ import annotations

LONGEST = 1024  # bytes that the core accepts

READER = b"stream:"
"""the beginning of the line of the reader"""


def join(trace: bytes | None, reader: bytes | None) -> bytes | None:
    """Return the context of a request with this trace and this reader; None: it has neither."""
    lines = [] if trace is None else [trace]
    if reader is not None:
        lines.append(READER + reader)
    packed = b"\n".join(lines)
    if len(packed) > LONGEST and trace is not None:
        return join(trace.partition(b"\n")[0], reader)  # without the state
    return packed or None


def trace_of(context: bytes) -> bytes | None:
    """Return the lines of the trace; None: there are none."""
    lines = [line for line in context.split(b"\n") if not line.startswith(READER)]
    return b"\n".join(lines) if lines else None


def reader_of(context: bytes) -> bytes | None:
    """Return the reader of the request's stream; None: the outputs are not streamed."""
    for line in context.split(b"\n"):
        if line.startswith(READER):
            return line[len(READER) :]
    return None
