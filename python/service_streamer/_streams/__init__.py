"""Streams of outputs: how pieces get from a model to the reader of ``streamer.stream(item)``.

::

    model ──▶ running ──▶ Writer ──────────────────────▶ Inbox ──▶ Stream, AsyncStream   (threads)
                          Writer ──▶ socket ──▶ Hub ──▶ Inbox ──▶ Stream, AsyncStream   (processes)

The request itself goes through the engine like any other. Its context names the reader, so the
process of the model knows where the pieces go. They do not go through the engine. The end does: the
output of the request is a `Sent`, which says how many pieces there are.

Each process has one `Hub` with the inboxes of its streams. The hub listens, and a thread
(`moving`) starts, when the first stream is read whose model is in another process.
"""
