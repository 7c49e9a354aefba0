"""Continuous batching: items enter and leave between two steps of a `StepModel`.

- `loop`: takes items, steps the live ones, and answers those that are done.
- `parts`: calls the model, and finds the guilty items if it raises.
- `worker_loop`: the loop of a worker process; `_threads.step_workers` is the backend of threads.
"""
