"""What a RayStreamer does before there is a cluster: its options, and the rule of its replicas."""

import socket
import threading

import pytest

from service_streamer import ClusterError, RayStreamer, StepModel
from service_streamer._ray.replicas.scaling import WINDOW, Load, Scaling


class Steps(StepModel):
    def admit(self, items):
        return items

    def step(self, states):
        return [(None, True)] * len(states)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"replicas": 0}, "replicas must be an int of at least 1, not 0"),
        ({"replicas": (3, 2)}, r"replicas must have the least number first, not \(3, 2\)"),
        ({"replicas": (1, 2, 3)}, "replicas must be an int or a pair of ints"),
        ({"num_gpus": -1}, "num_gpus must be 0 or a number of at least 0.0001, not -1"),
        ({"num_cpus": 0.00001}, "num_cpus must be 0 or a number of at least 0.0001, not 1e-05"),
        ({"num_gpus": 1.5}, "num_gpus must be whole, or less than 1, not 1.5"),
        ({"resources": {"disk": "a"}}, r"resources\['disk'\] must be 0 or a number"),
        ({"resources": {"GPU": 1}}, r"resources must not have 'GPU' \(it is 1\): use num_gpus"),
        ({"resources": {"memory": 1e6}}, r"resources must not have 'memory' \(it is 1000000.0\)"),
        ({"target_queue_time": 0}, "target_queue_time must be more than 0 seconds"),
        ({"name": ""}, "name must be a str that is not empty, not ''"),
        ({"worker_hang_timeout": 0}, "worker_hang_timeout must be more than 0 seconds"),
        ({"worker_num": 2}, "RayStreamer has no option worker_num=2"),
    ],
)
def test_invalid_options_are_named(options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        RayStreamer(sorted, 8, **options)


def test_an_invalid_option_of_a_file_is_named_with_its_line(tmp_path):
    file = tmp_path / "tuned.toml"
    file.write_text("[options]\nbatch_size = 8\nreplicas = [3, 2]\n")
    with pytest.raises(ValueError, match=r"tuned.toml, line 3: replicas must have the least"):
        RayStreamer(sorted, options=file)


def test_a_step_model_is_refused():
    with pytest.raises(TypeError, match="runs no StepModel such as Steps: use a Streamer"):
        RayStreamer(Steps, 8)


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b""])
def test_a_listener_that_is_no_head_is_reported_at_once(answer):
    pytest.importorskip("ray")

    def serve():
        connection, _ = server.accept()
        with connection:
            connection.recv(100)
            connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(ClusterError, match="what listens there is no Ray head"):
            RayStreamer(sorted, 8, ray_address=address)
        thread.join()


# ------------------------------------------------------------------ the rule


def decide(rule, now, queue_time=0.0, full=0.0, replicas=1, batches=100):
    return rule.decide(Load(now, queue_time, full, replicas, batches))


def test_replicas_are_added_at_once_in_proportion_to_the_time_in_the_queue():
    rule = Scaling(1, 8, target=0.1)
    assert decide(rule, 0, 0.1) == 1
    assert decide(rule, 1, 0.11) == 2
    assert decide(rule, 2, 0.12, replicas=4) == 5
    assert decide(rule, 3, 10.0, replicas=4) == 8
    assert decide(rule, 4, 10.0, replicas=8) == 8


def test_there_are_no_more_replicas_than_batches():
    rule = Scaling(1, 8, target=0.1)
    assert decide(rule, 0, 10.0, batches=1) == 1  # the first request waits for the model to load
    assert decide(rule, 1, 10.0, replicas=2, batches=3) == 3
    assert decide(rule, 2, 10.0, replicas=4, batches=1) == 4


def test_one_is_removed_when_the_others_were_enough_for_a_while():
    rule = Scaling(1, 8, target=0.1)
    loads = [decide(rule, now, full=0.5, replicas=3) for now in range(int(2 * WINDOW) + 1)]
    assert loads.count(2) == 2
    assert loads[: int(WINDOW)] == [3] * int(WINDOW)


def test_none_is_removed_while_full_batches_would_keep_the_others_too_busy():
    rule = Scaling(1, 8, target=0.1)
    assert {decide(rule, now, full=1.7, replicas=3) for now in range(100)} == {3}


def test_none_is_removed_while_requests_would_wait_too_long_for_the_others():
    rule = Scaling(1, 8, target=0.1)
    assert {decide(rule, now, 0.06, full=1.0, replicas=3) for now in range(100)} == {3}
    assert 2 in {decide(rule, now, 0.03, full=1.0, replicas=3) for now in range(100, 200)}


def test_a_time_above_the_target_starts_the_while_again():
    rule = Scaling(1, 8, target=0.1)
    for now in range(int(WINDOW)):
        decide(rule, now, replicas=3)
    assert decide(rule, WINDOW - 0.5, 0.2, replicas=3) == 6
    assert decide(rule, WINDOW + 1, replicas=6) == 6


def test_the_cost_of_a_full_batch_is_estimated_from_smaller_ones():
    pytest.importorskip("ray")
    from service_streamer._ray.replicas.meter import Costs

    costs = Costs()
    costs.add(1, 0.011)
    assert costs.of(64) == pytest.approx(64 * 0.011)  # nothing is known of a gain
    for items in (1, 2, 3, 2) * 50:
        costs.add(items, 0.01 + 0.001 * items)
    assert costs.of(64) == pytest.approx(0.01 + 0.001 * 64, rel=0.01)


def test_the_limits_hold():
    rule = Scaling(1, 4, target=0.1)
    assert {decide(rule, now, replicas=1) for now in range(100)} == {1}
    rule = Scaling(2, 4, target=0.1)
    assert {decide(rule, now, replicas=2) for now in range(100)} == {2}
    assert decide(rule, 101, 5.0, replicas=4) == 4
