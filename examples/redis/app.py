"""A web application whose model runs on worker machines.

gunicorn -c gunicorn_conf.py app:app
"""

from flask import Flask, Response, jsonify, request
from models import BadSentence
from settings import BROKER, SCALE_TO_ZERO, SECRET

from service_streamer import QueueFull, RedisStreamer, RequestTimeout, StreamerError, web

app = Flask(__name__)
streamer = RedisStreamer(BROKER, prefix="text-infilling", secret=SECRET, overflow="reject")


@app.post("/stream")
def stream_predict() -> Response:
    inputs = request.form.getlist("s")
    outputs = streamer.predict(inputs, timeout=10)
    return jsonify(outputs)


@app.get("/explain")
def explain() -> Response:
    return Response(streamer.explain(), mimetype="text/plain")


# /streamer/ is the live page; /streamer/live and /streamer/ready are for probes
routes = web.flask_blueprint({"text-infilling": streamer}, ready_without_workers=SCALE_TO_ZERO)
app.register_blueprint(routes, url_prefix="/streamer")


@app.errorhandler(BadSentence)  # an exception of the model reaches the caller unchanged
def bad_sentence(error: BadSentence) -> tuple[Response, int]:
    return jsonify(error=str(error)), 400


@app.errorhandler(StreamerError)
def not_now(error: StreamerError) -> tuple[Response, int]:
    status = 504 if isinstance(error, RequestTimeout) else 503
    response = jsonify(error=str(error))
    if isinstance(error, QueueFull):
        response.headers["Retry-After"] = str(max(1, round(error.retry_after)))
    return response, status
