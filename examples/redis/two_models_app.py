"""Two models behind one application. Each has a prefix and its own workers.

gunicorn -c gunicorn_conf.py two_models_app:app
"""

from flask import Flask, Response, jsonify, request
from settings import BROKER, SECRET

from service_streamer import RedisStreamer, web

app = Flask(__name__)
text_infilling = RedisStreamer(BROKER, prefix="text-infilling", secret=SECRET)
sentiment = RedisStreamer(BROKER, prefix="sentiment", secret=SECRET)
models = {"text-infilling": text_infilling, "sentiment": sentiment}
app.register_blueprint(web.flask_blueprint(models), url_prefix="/streamer")


@app.post("/stream")
def fill() -> Response:
    return jsonify(text_infilling.predict(request.form.getlist("s")))


@app.post("/sentiment")
def judge() -> Response:
    return jsonify(sentiment.predict(request.form.getlist("s")))


@app.post("/both")
def both() -> Response:
    """Use futures to run both models at the same time."""
    inputs = request.form.getlist("s")
    words, scores = text_infilling.submit(inputs), sentiment.submit(inputs)
    return jsonify(words=words.result(timeout=10), scores=scores.result(timeout=10))
