"""Streamers whose model runs in threads of this process.

It uses `_models` and `_streamers`, and `torch` for the options ``collate`` and ``device``.

- `threaded`: `ThreadedStreamer`. `batched`: the decorator.
- `worker`: the threads that run ``predict_function``. `step_workers`: the one of a `StepModel`.
- `native`: the C++ threads of a native model.
"""
