"""The Python half of the C++ engine: its futures, its outputs, and what serves it.

It uses `_base` and `_waiting`.

- `backend`: makes an engine; the interface of what runs its batches.
- `waiting_room`: the threads that take batches of an engine.
- `future`: of a request.
- `lifecycle`: closes all engines at the interpreter's exit, and makes new ones after a fork.
- `outputs`: checks the outputs of a batch, cuts them for its requests, and joins parts.
- `pickling`: items, outputs and exceptions on their way to another process.
"""
