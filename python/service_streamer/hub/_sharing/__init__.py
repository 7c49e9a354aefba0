"""Worker processes that many models of a hub share.

::

    handle ── SharedStreamer ── SharedEngine ┐                  ┌ SharedModels, in a worker process:
    handle ── SharedStreamer ── SharedEngine ┴ SharedWorker ────┤ model 1, model 2, …
                                               (one Streamer)   └

All models of a worker have one queue of `entries`. The key of an entry is its model, so a batch
has items of one model. Its weight is the part of a batch that it fills. The model is also its
tenant, so a busy model does not hold up the others.

The pickled models are in shared memory (`PackedModel`). A worker that replaces a dead one reads
them there, each with its first batch. `RunningModel` tells which model a worker ran when it died.
"""
