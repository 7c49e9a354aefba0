"""Settings from the environment, for web processes and workers."""

import os
from pathlib import Path

BROKER = os.environ.get("REDIS_BROKER", "localhost:6379")

# Without a secret, anything that can write to the broker can run code here: see the README.
SECRET_FILE = os.environ.get("SECRET_FILE")
SECRET = Path(SECRET_FILE).read_text().strip() if SECRET_FILE else None

# An autoscaler starts the first worker when requests wait.
SCALE_TO_ZERO = os.environ.get("SCALE_TO_ZERO") == "1"
