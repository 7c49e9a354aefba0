"""MODEL=network.pt2 gunicorn -c gunicorn_conf.py 'flask_service:create_app()'"""

bind = "127.0.0.1:5005"
worker_class = "gthread"
workers = 1  # a batch can only unite the requests of one process
threads = 32  # a batch can never have more requests than there are threads
keepalive = 30
loglevel = "warning"
control_socket_disable = True
