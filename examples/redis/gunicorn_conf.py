"""gunicorn -c gunicorn_conf.py app:app"""

import os

bind = os.environ.get("BIND", "127.0.0.1:5005")
worker_class = "gevent"
workers = int(os.environ.get("WEB_WORKERS", "2"))
worker_connections = 1000
keepalive = 30
graceful_timeout = 20
loglevel = "warning"
control_socket_disable = True
