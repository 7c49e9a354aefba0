"""gunicorn -c gunicorn_conf.py flask_app:app

With WORKER_CLASS=gevent in the environment: greenlets instead of threads.
"""

import os
import sys

# The model needs the GIL after each numpy call. By default, a web thread keeps the GIL for up to
# 5 ms.
sys.setswitchinterval(0.0005)

bind = "127.0.0.1:5005"
worker_class = os.environ.get("WORKER_CLASS", "gthread")
workers = 1  # only requests of the same process share a batch
threads = 64  # gthread: each thread has one request, so this limits the batch size
worker_connections = 1000  # the limit of greenlets (gevent) and of open connections (gthread)
keepalive = 30
loglevel = "warning"
control_socket_disable = True
