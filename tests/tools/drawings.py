"""Draws the SVG files in docs/images.

python tests/tools/drawings.py
"""

from __future__ import annotations

from pathlib import Path

from drawing import Drawing

IMAGES = Path(__file__).parents[2] / "docs" / "images"


def which_one() -> Drawing:
    """Where the model runs, for each kind of streamer."""
    about = (
        "Four kinds: the model in a thread, in C++ threads, in worker processes, on other machines"
    )
    drawing = Drawing(700, 496, about)

    def panel(x: float, y: float, title: str, text: str) -> None:
        drawing.text(x, y + 16, title, "code", "start")
        drawing.text(x, y + 36, text, "soft", "start")

    for x, title, text, model in (
        (15, "ThreadedStreamer(predict, 64)", "the model in a thread", ("model,", "one thread")),
        (
            360,
            "ThreadedStreamer(NativeModel(…), 64)",
            "a compiled torch model",
            ("model, C++", "without GIL"),
        ),
    ):
        panel(x, 10, title, text)
        drawing.group(x, 58, 325, 150, "one web process")
        for number in range(3):
            drawing.box(x + 12, 90 + 38 * number, 112, 30, "app", "web thread")
            drawing.arrow((x + 124, 105 + 38 * number), (x + 144, 105 + 38 * number))
        drawing.box(x + 146, 90, 50, 106, "engine", "queue")
        drawing.arrow((x + 196, 143), (x + 216, 143))
        drawing.box(x + 218, 108, 96, 70, "model", *model)

    panel(15, 240, "Streamer(Model, 64, worker_num=2)", "the model in worker processes")
    drawing.group(15, 288, 325, 192, "one machine")
    for number in range(3):
        y = 320 + 50 * number
        drawing.box(27, y, 112, 40, "app", "web process")
        drawing.arrow((139, y + 20), (159, y + 20))
    drawing.box(161, 320, 50, 140, "engine", "queue")
    for number in range(2):
        y = 325 + 70 * number
        drawing.arrow((211, y + 30), (231, y + 30))
        drawing.box(233, y, 96, 60, "model", "model on", f"GPU {number}")

    panel(360, 240, "RedisStreamer(broker)", "the model on other machines")
    for number in range(2):
        y = 288 + 100 * number
        drawing.group(360, y, 122, 92, "web machine")
        drawing.box(370, y + 30, 102, 48, "app", "web", "processes")
        drawing.arrow((482, y + 46), (496, y + 46))
        drawing.arrow((550, y + 46), (564, y + 46))
        drawing.group(566, y, 119, 92, "GPU machine")
        drawing.box(576, y + 30, 99, 48, "model", "queue,", "model")
    drawing.box(498, 300, 52, 168, "broker", "Redis:", "queue")
    return drawing


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


PICTURES = {
    "which-one": which_one,
    "life-threads": life_in_threads,
    "life-processes": life_in_processes,
    "life-redis": life_over_redis,
    "batches": how_a_batch_forms,
    "engine": engine,
    "threads": threads,
}


def main() -> None:
    """Write all pictures."""
    for name, draw in PICTURES.items():
        (IMAGES / f"{name}.svg").write_text(draw().svg())


if __name__ == "__main__":
    main()
