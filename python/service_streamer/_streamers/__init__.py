"""What all streamers share: their methods, and what they show.

It uses the rooms of the engine, of waiting, of streams and of statistics. It knows no model and
nothing that runs one.

================  ================================================================================
streamer          `BaseStreamer`: settings, life cycle, statistics
requests          the methods that send requests
tracing           how requests are sent with spans, and the interface of a tracer
view              a streamer as monitors see it
map               ``streamer.map``
timeline          ``streamer.record``
coalescing        ``coalesce`` and ``cache``: equal items run once
notebook          what notebooks show; `output_cache`: without keeping the streamer alive
================  ================================================================================
"""
