"""MODELS=models MAX_LOADED=8 gunicorn -c gunicorn_conf.py hub_app:app"""

import logging
import sys

# The models need the GIL after each numpy call. By default, a web thread keeps the GIL for up to
# 5 ms.
sys.setswitchinterval(0.0005)

bind = "127.0.0.1:5005"
worker_class = "gthread"
workers = 1  # each worker has a hub of its own, and its own copies of the models
threads = 64
keepalive = 30
loglevel = "warning"
control_socket_disable = True


def post_fork(server: object, worker: object) -> None:
    """Log what the hub loads and unloads. demo.py reads that."""
    line = logging.Formatter("%(created).4f %(message)s")
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(line)
    logger = logging.getLogger("service_streamer")
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
