"""Options in a file, options="tuned.toml": the same in every constructor; the call wins."""

import re

import pytest
from step_models import Countdown
from thread_models import double

from service_streamer import (
    Pipeline,
    RayStreamer,
    Stage,
    Streamer,
    ThreadedStreamer,
    batched,
)
from service_streamer.hub import ModelHub, ModelSpec

pytestmark = pytest.mark.every_python

TUNED = """\
[options]
batch_size = 16
max_latency = 0.5
policy = "greedy"

[options.tenants]
acme = 3
"*" = 1

[tuned]
throughput = 1200.5
model = { name = "Encoder" }
"""


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "tuned.toml"
        path.write_text(text)
        return path

    return write


def settings(streamer):
    with streamer:
        stats = streamer.stats()
    return stats.batch_size, stats.max_latency, stats.policy, set(stats.tenant_stats)


TENANTS = {"acme", "*"}


@pytest.mark.parametrize("kind", [ThreadedStreamer, Streamer])
def test_a_file_has_options_and_the_call_wins(kind, file):
    path = file(TUNED)
    forked = {} if kind is ThreadedStreamer else {"mp_start_method": "fork"}
    made = kind(double, options=path, **forked)
    assert settings(made) == (16, 0.5, "greedy", TENANTS)
    made = kind(double, 8, policy="window", options=str(path), **forked)
    assert settings(made) == (8, 0.5, "window", TENANTS)
    assert settings(kind(double, 8, options=None, **forked)) == (8, 0.1, "adaptive", set())


def test_the_options_of_a_hub_and_of_a_stage_may_be_in_a_file(file):
    path = file(TUNED)
    models = {
        "tuned": ModelSpec(double, options=path),
        "given": ModelSpec(double, batch_size=8, options=path),
    }
    with ModelHub(models) as hub:
        assert hub.predict("tuned", [1]) == hub.predict("given", [1]) == [2]
        sizes = {name: hub[name].stats().batch_size for name in models}
        assert sizes == {"tuned": 16, "given": 8}
        assert hub["given"].stats().policy == "greedy"
    path = file("[options]\nbatch_size = 16\nworker_num = 2\npolicy = 'window'\n")
    stages = (Stage(double, name="tuned", options=path), Stage(double, 8, workers=1, options=path))
    with Pipeline(*stages) as pipeline:
        found = [each.stats() for each in pipeline.stages.values()]
    assert [(each.batch_size, each.workers, each.policy) for each in found] == [
        (16, 2, "window"),
        (8, 1, "window"),
    ]


FOUND = """\
[options]
batch_size = 16
policy = "greedy"
worker_num = 2
threads_per_worker = 1
affinity = "auto"

[tuned]
throughput = 1200.5
"""
"""what a search writes: the options of worker processes"""

PLACES = "ThreadedStreamer does not have: threads_per_worker, affinity"


@pytest.mark.parametrize(
    "make",
    [
        lambda path: ThreadedStreamer(double, options=path),
        lambda path: Pipeline(Stage(double, options=path)),
        lambda path: ModelHub({"double": ModelSpec(double, options=path, load="start")}),
    ],
)
def test_a_class_leaves_out_what_a_search_has_found_for_others(make, file, caplog):
    path = file(FOUND)
    with caplog.at_level("INFO", "service_streamer"), make(path) as made:
        if isinstance(made, ModelHub):
            made.load("double")
    assert caplog.messages.count(f"{path}: left out what {PLACES}") == 1


def test_the_options_that_a_search_has_found_count_in_every_class(file):
    path = file(FOUND)
    with ThreadedStreamer(double, options=path) as streamer:
        stats = streamer.stats()
    assert (stats.batch_size, stats.policy, stats.workers) == (16, "greedy", 2)
    with pytest.raises(TypeError, match="runs no StepModel"):  # it has accepted the options
        RayStreamer(Countdown, options=path)


def test_a_class_does_not_leave_out_what_the_call_gives(file):
    with pytest.raises(TypeError, match=r"^ThreadedStreamer has no option affinity='auto'"):
        ThreadedStreamer(double, affinity="auto", options=file(FOUND))


def test_an_empty_path_is_named():
    with pytest.raises(ValueError, match="options='': it must be the path of a file"):
        ThreadedStreamer(double, options="")


SENTENCES = [
    (
        "batch_size = 8\n[options]\n",
        ValueError,
        "FILE, line 1: 'batch_size' is not known: options are in the table [options]",
    ),
    ("", ValueError, "FILE has no table [options]"),
    ("[options]\nbatch_size = \n", ValueError, "FILE: Invalid value (at line 2, column 14)"),
    (
        "[options]\nbatch_size = 8\nbatchsize = 8\n",
        TypeError,
        "FILE, line 3: ThreadedStreamer has no option batchsize=8: did you mean batch_size?",
    ),
    (
        "[options]\nbatch_size = 8\nretries = 2\n",
        TypeError,
        "FILE, line 3: ThreadedStreamer has no option retries=2: it is an option of Streamer, "
        "RedisWorker",
    ),
    (
        "[options]\nbatch_size = 8\nbatchsize = 8\n[tuned]\n",
        TypeError,
        "FILE, line 3: ThreadedStreamer has no option batchsize=8: did you mean batch_size?",
    ),
    (
        "[options]\npolicy = 'greedy'\nbatch_size = '8'\n",
        ValueError,
        "FILE, line 3: batch_size must be an int of at least 1, not '8'",
    ),
    (
        "[options]\nbatch_size = 8\n[options.tenants]\nacme = 'three'\n",
        ValueError,
        "FILE, line 3: tenants must have shares from 1e-06 to 1e+06, not 'three' for 'acme'",
    ),
    (
        "[options]\nbatch_size = 8\npredict_function = 'len'\n",
        TypeError,
        "FILE, line 3: ThreadedStreamer has no option predict_function='len': its options are "
        "batch_size,",
    ),
    (
        "[options]\nbatch_size = 8\noptions = 'other.toml'\n",
        ValueError,
        "FILE, line 3: options='other.toml': one file has them all",
    ),
    (
        "[options]\npolicy = 'greedy'\n",
        TypeError,
        "ThreadedStreamer needs batch_size, the most items of a batch: give it, or as options= a "
        "file that has it",
    ),
]


@pytest.mark.parametrize(("text", "error", "sentence"), SENTENCES)
def test_a_mistake_in_a_file_is_reported_with_its_place_and_the_remedy(text, error, sentence, file):
    path = file(text)
    with pytest.raises(error) as raised:
        ThreadedStreamer(double, options=path)
    assert str(raised.value).startswith(sentence.replace("FILE", str(path)))


def test_the_options_that_a_file_may_have_are_named_without_options_itself(file):
    with pytest.raises(TypeError, match="has no option x=") as raised:
        ThreadedStreamer(double, options=file("[[options.x]]\n"))
    names = str(raised.value).splitlines()[0].partition("its options are ")[2].split(", ")
    assert "policy" in names
    assert "options" not in names


def test_a_mistake_in_the_call_is_not_blamed_on_the_file(file):
    with pytest.raises(ValueError, match=r"^batch_size must be an int of at least 1, not 0"):
        ThreadedStreamer(double, 0, options=file(TUNED))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda path: ModelSpec(double, options=path),
            "ModelSpec has no option depth=3: its options are ",
        ),
        (
            lambda path: Pipeline(Stage(double, options=path)),
            "ThreadedStreamer has no option depth=3: its options are ",
        ),
    ],
)
def test_a_mistake_in_a_file_of_a_hub_or_a_stage_is_reported_with_its_place(make, sentence, file):
    path = file("[options]\nbatch_size = 8\ndepth = 3\n")
    with pytest.raises(TypeError, match=re.escape(f"{path}, line 3: {sentence}")):
        make(path)


@pytest.mark.parametrize(
    ("given", "error", "sentence"),
    [
        ("no.toml", FileNotFoundError, r"options='no.toml': /.*/no.toml does not exist; give the"),
        (".", ValueError, r"\. is not a file"),
        ({"batch_size": 8}, TypeError, r"not {'batch_size': 8}: unpack it, \*\*options"),
        (64, TypeError, r'the path of a TOML file, such as "tuned.toml", not 64'),
    ],
)
def test_a_path_that_is_no_file_is_reported(given, error, sentence):
    with pytest.raises(error, match=sentence):
        ThreadedStreamer(double, options=given)


def test_what_takes_no_file_says_so(file):
    path = str(file(TUNED))
    with pytest.raises(TypeError, match=r"Streamer\.connect has no option options='.*': it is an"):
        Streamer.connect("@nobody", options=path)
    with pytest.raises(TypeError, match=r"batched has no option options='.*': give it to a Th"):
        batched(8, options=path)
    with pytest.raises(TypeError, match=r"Pipeline has no option options='.*': it is an option"):
        Pipeline(double, options=path)


def test_clients_and_workers_of_redis_take_a_file(file, monkeypatch):
    pytest.importorskip("redis")
    from service_streamer import RedisStreamer, RedisWorker, run_redis_workers_forever

    with RedisStreamer(options=file("[options]\nprefix = 'a'\nbatch_size = 4\n")) as streamer:
        assert repr(streamer).startswith("<RedisStreamer('a')")
    RedisStreamer(prefix="b", options=file(FOUND)).close()
    RedisWorker(double, options=file(FOUND)).close()
    ran = []
    monkeypatch.setattr(RedisWorker, "run_forever", lambda worker: ran.append(worker))
    path = file("[options]\nbatch_size = 4\nprefix = 'b'\nmp_start_method = 'forkserver'\n")
    run_redis_workers_forever(double, options=path)
    run_redis_workers_forever(double, prefix="c", options=path)
    assert [repr(worker)[-11:] for worker in ran] == ["prefix='b')", "prefix='c')"]
    with pytest.raises(ValueError, match=re.escape(f"{path}, line 2: batch_size must")):
        RedisWorker(double, options=file("[options]\nbatch_size = 0\n"))
