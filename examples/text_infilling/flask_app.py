"""The tutorial's web application: /naive calls the model directly, /stream uses a streamer.

curl -d 's=Happy birthday to [MASK].' http://127.0.0.1:5005/stream
"""

from flask import Flask, Response, jsonify, request
from model import BadSentence, TextInfillingModel

from service_streamer import ThreadedStreamer, web

app = Flask(__name__)
model = TextInfillingModel()
streamer = ThreadedStreamer(model.predict, batch_size=64, max_latency=0.1)


@app.post("/naive")
def naive_predict() -> Response:
    inputs = sentences()
    outputs = model.predict(inputs)
    return jsonify(outputs)


@app.post("/stream")
def stream_predict() -> Response:
    inputs = sentences()
    outputs = streamer.predict(inputs)
    return jsonify(outputs)


# /streamer/ is the live page; /streamer/live and /streamer/ready are for probes
app.register_blueprint(web.flask_blueprint(streamer), url_prefix="/streamer")


@app.get("/explain")
def explain() -> Response:
    return Response(streamer.explain(), mimetype="text/plain")


def sentences() -> list[str]:
    """Return the form's fields `s`. They are checked before they share a batch with others."""
    inputs = request.form.getlist("s")
    if not inputs:
        raise BadSentence("the form has no field 's'")
    for sentence in inputs:
        model.encode(sentence)
    return inputs


@app.errorhandler(BadSentence)
def bad_sentence(error: BadSentence) -> tuple[Response, int]:
    return jsonify(error=str(error)), 400


if __name__ == "__main__":
    app.run(port=5005, debug=False)
