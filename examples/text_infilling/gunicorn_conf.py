"""gunicorn -c gunicorn_conf.py flask_app:app

With WORKER_CLASS=gevent in the environment: greenlets instead of threads.
"""

import os
import sys

# After each numpy call the model wants the interpreter back from the web threads, whose turns last
# 5 ms by default.
sys.setswitchinterval(0.0005)

bind = "127.0.0.1:5005"
worker_class = os.environ.get("WORKER_CLASS", "gthread")
workers = 1  # a batch can only unite the requests of one process
threads = 64  # gthread: a batch can never have more requests than there are threads
worker_connections = 1000  # gevent, and the limit of gthread's open connections
keepalive = 30
loglevel = "warning"
control_socket_disable = True
