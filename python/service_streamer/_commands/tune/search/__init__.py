"""The search for the settings of a streamer: ``service-streamer tune``. Needs optuna.

This package starts nothing and measures nothing. The command gives it a load to ask.

::

    search ──▶ rates     one trial: the largest rate within the target
       │
       ├──────▶ space     the settings that are tried
       ├──────▶ trial     what a trial leaves
       ├──────▶ front     what is best, for each latency
       └──────▶ journal   the file with which an interrupted search goes on
    file                  tuned.toml
"""
