"""gunicorn -c gunicorn_shared_conf.py shared_flask_app:app"""

import os

bind = "127.0.0.1:5005"
preload_app = True  # make the streamer once, before the web processes are forked
workers = int(os.environ.get("WEB_WORKERS", "4"))
threads = 16
keepalive = 30
max_requests = 10_000  # web processes are replaced after some requests; the model is not
max_requests_jitter = 1_000
loglevel = "warning"
control_socket_disable = True
