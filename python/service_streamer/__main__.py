"""The command line as ``python -m service_streamer``."""

from __future__ import annotations

import sys

from ._commands.main import main

if __name__ == "__main__":
    sys.exit(main())
