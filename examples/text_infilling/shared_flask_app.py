"""The application of flask_app.py for several web processes that share one set of model workers.

gunicorn -c gunicorn_shared_conf.py shared_flask_app:app

gunicorn imports this file once (--preload) and then forks the web processes. In a forked process
the streamer is a client of the one in the parent. Without --preload, each process would make a
streamer of its own.
"""

import os

from flask import Flask, Response, jsonify, request
from model import BadSentence, ManagedBertModel

from service_streamer import Streamer, web

app = Flask(__name__)
streamer = Streamer(
    ManagedBertModel,
    batch_size=64,
    max_latency=0.1,
    worker_num=int(os.environ.get("MODEL_WORKERS", "1")),
)


@app.post("/stream")
def stream_predict() -> Response:
    inputs = request.form.getlist("s")
    if not inputs:
        raise BadSentence("the form has no field 's'")
    return jsonify(streamer.predict(inputs))


# /streamer/ is the live page; /streamer/live and /streamer/ready are for probes
app.register_blueprint(web.flask_blueprint(streamer), url_prefix="/streamer")


@app.get("/explain")
def explain() -> Response:
    return Response(streamer.explain(), mimetype="text/plain")


# Raised by the model in its worker. Other requests in the same batch do not fail.
@app.errorhandler(BadSentence)
def bad_sentence(error: BadSentence) -> tuple[Response, int]:
    return jsonify(error=str(error)), 400
