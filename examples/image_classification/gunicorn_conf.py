"""MODEL=network.pt2 gunicorn -c gunicorn_conf.py 'flask_service:create_app()'"""

bind = "127.0.0.1:5005"
worker_class = "gthread"
workers = 1  # only requests of the same process share a batch
threads = 32  # each thread has one request, so this limits the batch size
keepalive = 30
loglevel = "warning"
control_socket_disable = True
