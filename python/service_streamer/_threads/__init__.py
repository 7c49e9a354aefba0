"""Streamers whose model runs in threads of this process.

It uses `_models` and `_streamers`, and `torch` for the options ``collate`` and ``device``.

- `threaded`: `ThreadedStreamer`. `batched`: the decorator of functions and methods.
- `worker`: the threads that run ``predict_function``. `step_workers`: the one of a `StepModel`.
- `async_workers`: the event loop of an ``async def`` model.
- `native`: the C++ threads of a native model.
"""
