"""The search for the settings of a streamer: ``service-streamer tune``. Needs optuna.

This package starts nothing and measures nothing. The command gives it a load to ask.

::

    _search ──▶ _rates     one trial: the largest rate within the target
       │
       ├──────▶ _space     the settings that are tried
       ├──────▶ _trial     what a trial leaves
       ├──────▶ _front     what is best, for each latency
       └──────▶ _journal   the file with which an interrupted search goes on
    _file                  tuned.toml
"""
