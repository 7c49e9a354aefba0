"""Streams of outputs: how pieces get from a model to the reader of ``streamer.stream(item)``.

::

    threads     model ──▶ running ──▶ LocalWriter ─────────────▶ Inbox ──▶ Stream, AsyncStream
    processes   model ──▶ running ──▶ RemoteWriter ══▶ Listener ──▶ Inbox ──▶ ...
    Redis       model ──▶ running ──▶ RemoteWriter ══▶ StreamRelay ──▶ Redis ──▶ Inbox ──▶ ...

    ══▶  a Unix socket (`moving`)

The request itself goes through the engine like any other. Its context names the reader, so the
process of the model knows where the pieces go. They do not go through the engine. The number of
pieces does: the output of the request is a `Sent`.

Each process has one `Hub` with the inboxes of its streams. The hub listens, and a thread
(`moving.Mover`) starts, when the first stream is read whose model is in another process.

=============  ===================================================================================
opening        sends the request of a stream, and opens its writer
stream         what the caller iterates over
inbox, hub     the pieces that a reader has not taken; all inboxes of the process
running        runs a generator function, or a model whose outputs are iterators
writer         what a loop that runs a model calls; `local` and `remote` have the writers
moving         the thread and the connections between processes; `listening`: the reader's side
=============  ===================================================================================
"""
