"""Equal items of one process run once: an engine in front of the engine of a streamer.

It uses `_base`, `_waiting` and `_engine`. A streamer with ``coalesce`` or ``cache`` imports it.

- `coalescer`: finds equal items that are queued or running, and answers all their callers.
- `keys`: which items are equal.
- `answers`: the outputs of finished items.
"""
