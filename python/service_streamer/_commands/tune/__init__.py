"""``tune``: finds the settings of a model for a target of the p99.

::

    command ──▶ search              which settings are tried, and what is best
       │
       ├─────▶ process ──▶ trial    one trial, in a process of its own
       └─────▶ output               table, plot and tuned.toml
"""

from .command import add_to, run

__all__ = ["add_to", "run"]
