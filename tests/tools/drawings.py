"""Draws the SVG files in docs/images.

python tests/tools/drawings.py
"""

from __future__ import annotations

from pathlib import Path

from drawing import Drawing

IMAGES = Path(__file__).parents[2] / "docs" / "images"


WHICH_ONE = [  # title, when to take it, what surrounds it
    (
        "ThreadedStreamer(predict, 64)",
        ("one web process, and a model", "that computes outside Python"),
        "one web process",
    ),
    (
        "ThreadedStreamer(NativeModel(…), 64)",
        ("one web process that is busy with", "Python code, and a torch model"),
        "one web process",
    ),
    (
        "Streamer(Model, 64, worker_num=2)",
        ("one machine: several GPUs, several web", "processes, or a model that holds the GIL"),
        "one machine",
    ),
    (
        "RedisStreamer(broker)",
        ("several machines that you start yourself,", "and clients that are anywhere"),
        "",
    ),
    (
        "RayStreamer(Model, 64, replicas=2)",
        ("several machines of a Ray cluster, which", "places, restarts and adds the replicas"),
        "nodes of a Ray cluster",
    ),
]


def which_one() -> Drawing:
    """When to take which streamer, and where the model runs then."""
    about = "When to take threads, C++ threads, worker processes, Redis or Ray: a row for each"
    drawing = Drawing(700, 20 + 112 * len(WHICH_ONE), about)
    left, middle, right = 357, 485, 565
    for number, (title, when, around) in enumerate(WHICH_ONE):
        y = 12 + 112 * number
        drawing.text(15, y + 22, title, "code", "start")
        for line, text in enumerate(when):
            drawing.text(15, y + 48 + 19 * line, text, "soft", "start")
        if around:
            drawing.group(345, y, 340, 98, around)
            drawing.box(middle, y + 30, 56, 58, "engine", "queue")
    for number, model in ((0, ("model,", "one thread")), (1, ("model, C++", "without GIL"))):
        y = 42 + 112 * number
        drawing.box(left, y, 104, 58, "app", "web threads")
        drawing.box(right, y, 110, 58, "model", *model)
        one_way(drawing, left + 104, y + 29, middle)
        one_way(drawing, middle + 56, y + 29, right)
    for number, app, model in ((2, "web process", "model, GPU"), (4, "any process", "replica")):
        for each in range(2):
            y = 42 + 112 * number + 31 * each
            drawing.box(left, y, 104, 27, "app", app)
            drawing.box(right, y, 110, 27, "model", f"{model} {each}")
            one_way(drawing, left + 104, y + 13, middle)
            one_way(drawing, middle + 56, y + 13, right)
    y = 12 + 112 * 3
    drawing.group(345, y, 118, 98, "web machines")
    drawing.box(left, y + 30, 94, 58, "app", "web", "processes")
    one_way(drawing, 463, y + 59, middle)
    drawing.box(middle, y, 56, 98, "broker", "Redis:", "queue")
    one_way(drawing, middle + 56, y + 59, right)
    drawing.group(565, y, 120, 98, "GPU machines")
    drawing.box(577, y + 30, 96, 58, "model", "queue,", "models")
    return drawing


def one_way(drawing: Drawing, start: float, y: float, end: float) -> None:
    """Draw an arrow from the edge of a box to that of another."""
    drawing.arrow((start, y), (end - 2, y))


def life_in_threads() -> Drawing:
    """A request of a ThreadedStreamer."""
    drawing = Drawing(
        700, 236, "A request goes from a web thread through the queue to the model, and back"
    )
    drawing.group(10, 10, 680, 216, "web process")
    for number in range(3):
        y = 44 + 42 * number
        drawing.box(24, y, 140, 34, "app", "web thread, task")
        drawing.arrow((164, y + 17), (246, y + 17))
    drawing.box(248, 44, 150, 118, "engine", "queue", "(C++, no thread)")
    drawing.arrow((398, 103), (490, 103))
    drawing.box(492, 60, 182, 86, "model", "worker thread:", "predict(batch)")
    drawing.arrow((583, 146), (583, 200), (94, 200), (94, 164))
    drawing.step(1, 205, 86)
    drawing.step(2, 446, 86)
    drawing.step(3, 656, 76)
    drawing.step(4, 340, 200)
    return drawing


def life_in_processes() -> Drawing:
    """A request of a Streamer, with two web processes."""
    drawing = Drawing(
        700, 330, "Requests go from web processes to the process with the queue, and to workers"
    )
    for number in range(2):
        y = 10 + 104 * number
        drawing.group(10, y, 176, 94, "web process")
        drawing.box(24, y + 34, 148, 44, "app", "threads, tasks")
        drawing.arrow((186, y + 47), (262, y + 47))
    drawing.group(264, 10, 182, 198, "process of the Streamer")
    drawing.box(
        282, 50, 146, 136, "engine", "queue;", "a C++ thread", "reads and writes", "the sockets"
    )
    for number in range(2):
        y = 10 + 104 * number
        drawing.arrow((446, y + 47), (514, y + 47))
        drawing.group(516, y, 174, 94, "worker process")
        drawing.box(530, y + 34, 146, 44, "model", f"model on GPU {number}")
    drawing.box(
        10,
        254,
        680,
        64,
        "broker",
        "shared memory",
        "arrays of 32 KB and more: only their place is sent",
    )
    drawing.rule((98, 208), (98, 254), kind="dash")
    drawing.rule((603, 208), (603, 254), kind="dash")
    drawing.step(1, 222, 40)
    drawing.step(2, 300, 66)
    drawing.step(3, 480, 40)
    drawing.step(4, 672, 28)
    return drawing


def life_over_redis() -> Drawing:
    """A request of a RedisStreamer."""
    drawing = Drawing(
        700, 260, "Requests go from web machines to a stream at Redis, and from there to workers"
    )
    for number in range(2):
        y = 10 + 122 * number
        drawing.group(10, y, 170, 112, "web machine")
        drawing.box(24, y + 36, 142, 58, "app", "RedisStreamer", "in each process")
        drawing.arrow((180, y + 50), (262, y + 50))
        drawing.arrow((262, y + 80), (180, y + 80))
    drawing.group(264, 10, 172, 234, "Redis")
    drawing.box(280, 42, 140, 88, "broker", "one queue", "for each prefix")
    drawing.box(280, 142, 140, 88, "broker", "one reply list", "for each client")
    for number in range(2):
        y = 10 + 122 * number
        drawing.arrow((436, y + 50), (516, y + 50))
        drawing.arrow((516, y + 80), (436, y + 80))
        drawing.group(518, y, 172, 112, "worker machine")
        drawing.box(532, y + 36, 144, 58, "model", "queue, then", "model processes")
    drawing.step(1, 222, 42)
    drawing.step(2, 476, 42)
    drawing.step(3, 668, 34)
    drawing.step(4, 476, 108)
    drawing.step(5, 222, 108)
    return drawing


WAITS, RUNS = "engine", "model"
REQUESTS = [  # arrival, start and end of its batch
    (10, 10, 130), (40, 130, 280), (75, 130, 280), (110, 130, 280),
    (200, 320, 480), (296, 320, 480), (306, 320, 480), (320, 320, 480),
]  # fmt: skip


def how_a_batch_forms() -> Drawing:
    """Eight requests in three batches, along the time."""
    drawing = Drawing(
        700, 350, "Requests that arrive while the model is busy run together in its next batch"
    )
    left, top, row = 150, 40, 24
    drawing.text(left - 12, 26, "time →", "soft", "end")
    for number, (arrival, start, end) in enumerate(REQUESTS):
        y = top + row * number
        drawing.text(left - 12, y + 14, f"request {number + 1}", "soft", "end")
        if start > arrival:
            drawing.box(left + arrival, y, start - arrival, 18, WAITS)
        drawing.box(left + start, y, end - start, 18, RUNS)
    y = top + row * len(REQUESTS) + 18
    drawing.text(left - 12, y + 22, "model", "title", "end")
    for start, end, text in (
        (10, 130, "batch of 1"),
        (130, 280, "batch of 3"),
        (320, 480, "batch of 4"),
    ):
        drawing.box(left + start, y, end - start, 34, RUNS, text)
        drawing.rule((left + start, top - 6), (left + start, y), kind="dash")
    drawing.rule((left + 280, top - 6), (left + 280, y), kind="dash")
    drawing.text(left + 300, y + 22, "waits", "soft")
    for x, number in ((10, 1), (130, 2), (300, 3)):
        drawing.step(number, left + x, y + 50)
    y += 76
    drawing.box(left, y, 18, 18, WAITS)
    drawing.text(left + 26, y + 14, "waits in the queue", "soft", "start")
    drawing.box(left + 190, y, 18, 18, RUNS)
    drawing.text(left + 216, y + 14, "runs", "soft", "start")
    return drawing


def engine() -> Drawing:
    """What is in front of the engine, in it, and behind it."""
    about = "Callers submit requests to the Engine; threads, processes and machines take batches"
    drawing = Drawing(700, 392, about)
    drawing.box(10, 130, 92, 80, "app", "thread,", "task,", "greenlet")
    drawing.arrow((102, 170), (136, 170))
    drawing.group(138, 10, 176, 320, "Engine: one mutex")
    drawing.box(152, 42, 148, 62, "engine", "waiting room:", "the queue is full")
    drawing.arrow((226, 104), (226, 130))
    drawing.box(152, 132, 148, 80, "engine", "RequestQueue:", "by priority,", "tenant, arrival")
    drawing.arrow((226, 212), (226, 238))
    drawing.box(152, 240, 148, 62, "engine", "BatchPolicy:", "is a batch due?")
    rows = [
        ("cut: batch", "ThreadedStreamer", "Python thread", ""),
        ("cut: batch", "NativeModel", "C++ threads", ""),
        ("cut: batch", "Streamer: Server", "worker process", "socket"),
        ("forward", "client: ClientLink", "Server of another process", "socket"),
        ("forward", "RedisStreamer: BrokerEgress", "BrokerIngress, Engine", "Redis"),
    ]
    for number, (how, first, second, between) in enumerate(rows):
        y = 10 + 66 * number
        drawing.arrow((314, y + 27), (398, y + 27))
        drawing.text(354, y + 20, how, "soft")
        way = f"→ {between} → {second}" if between else f"→ {second}"
        drawing.box(400, y, 290, 54, "model", first, way)
    drawing.arrow((545, 328), (545, 362), (56, 362), (56, 212))
    drawing.text(300, 382, "complete: the last output ends a request, and wakes its caller", "soft")
    return drawing


def threads() -> Drawing:
    """The threads of a Streamer with a client process, and the locks that they take."""
    drawing = Drawing(700, 330, "Callers and the thread of the server take the mutex of the engine")
    drawing.group(10, 10, 330, 190, "process of the Streamer")
    drawing.box(24, 42, 110, 40, "app", "callers")
    drawing.box(24, 96, 110, 40, "app", "supervisor")
    drawing.box(18, 150, 122, 40, "app", "streamer-server")
    drawing.box(200, 42, 126, 62, "engine", "Engine::mutex_")
    drawing.box(200, 120, 126, 70, "engine", "orders of", "other threads", "(Server)")
    drawing.arrow((134, 62), (198, 62))
    drawing.arrow((134, 116), (198, 142))
    drawing.arrow((140, 160), (166, 160), (166, 90), (198, 90))
    drawing.arrow((140, 176), (198, 176))
    drawing.group(360, 10, 330, 190, "client process")
    drawing.box(374, 60, 120, 40, "app", "callers")
    drawing.box(374, 140, 120, 40, "app", "streamer-client")
    drawing.box(550, 90, 126, 62, "engine", "Engine::mutex_")
    drawing.arrow((494, 80), (522, 80), (522, 108), (548, 108))
    drawing.arrow((494, 160), (522, 160), (522, 134), (548, 134))
    drawing.group(10, 240, 330, 80, "worker process")
    drawing.box(24, 268, 302, 40, "model", "main thread: unpickle, predict, pickle")
    drawing.rule((50, 190), (50, 240), kind="dash")
    drawing.rule((120, 190), (120, 226), (434, 226), (434, 180), kind="dash")
    drawing.text(277, 219, "Unix sockets", "soft")
    return drawing


FLOORS = [
    ("app", "commands", "_commands"),
    ("app", "the live page", "web"),
    ("app", "servers and monitors", "server · embeddings · metrics · otel"),
    ("app", "many models", "hub"),
    ("app", "the wall", "extend"),
    ("model", "streamers of others", "_pipeline · _redis · _ray"),
    ("model", "streamers, ONNX files", "_threads · _processes · onnx"),
    ("model", "native models", "torch"),
    ("model", "models", "_models"),
    ("engine", "what all streamers share", "_streamers"),
    ("engine", "pieces of outputs", "_streams"),
    ("engine", "the engine in Python, numbers", "_engine · _statistics"),
    ("engine", "waits, cores and devices", "_waiting · _placement · managed_model"),
    ("group", "errors, options, types", "_base"),
    ("broker", "C++", "_core · _torch"),
]
"""the rooms of the Python package from the top down: the kind, a title, the names"""


def python_package() -> Drawing:
    """The rooms of the Python package, each above those that it uses."""
    about = "Fifteen floors from the C++ core up to the commands; a room uses only rooms below it"
    drawing = Drawing(700, 20 + 44 * len(FLOORS), about)
    for number, (kind, title, rooms) in enumerate(FLOORS):
        y = 10 + 44 * number
        drawing.text(190, y + 24, title, "soft", "end")
        drawing.box(205, y, 430, 38, kind, rooms)
    drawing.arrow((660, 20), (660, 44 * len(FLOORS)))
    drawing.text(668, 22 * len(FLOORS), "uses", "soft", "start")
    return drawing


PICTURES = {
    "which-one": which_one,
    "life-threads": life_in_threads,
    "life-processes": life_in_processes,
    "life-redis": life_over_redis,
    "batches": how_a_batch_forms,
    "engine": engine,
    "python-package": python_package,
    "threads": threads,
}


def main() -> None:
    """Write all pictures."""
    for name, draw in PICTURES.items():
        (IMAGES / f"{name}.svg").write_text(draw().svg())


if __name__ == "__main__":
    main()
