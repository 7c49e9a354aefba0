"""@batched on methods: each object has a streamer of its own."""

import abc
import copy
import functools
import gc
import logging
import pickle
import threading
import weakref

import pytest
from free_threading import freed_at_once
from thread_models import Gate, double
from told import told
from waits import LONG, eventually

from service_streamer import StreamerClosed, ThreadedStreamer, batched


class Service:
    """Its objects are equal, so they cannot be hashed."""

    def __init__(self, mark="!"):
        self.mark = mark

    def __eq__(self, other):
        return True

    __hash__ = None

    @batched(batch_size=8)
    def shout(self, texts):
        """Make capitals."""
        return [text.upper() + self.mark for text in texts]

    @batched(8)
    async def whisper(self, texts):
        return [text.lower() + self.mark for text in texts]

    @batched(8)
    def spell(self, texts):
        yield from zip(*(text + self.mark for text in texts), strict=True)

    @batched(8)
    @classmethod
    def named(cls, texts):
        return [cls.__name__ + text for text in texts]

    @classmethod
    @batched(8)
    def named_below(cls, texts):
        return [cls.__name__ + text for text in texts]

    @batched(8)
    @staticmethod
    def plain(texts):
        return [text.title() for text in texts]

    @staticmethod
    @batched(8)
    def plain_below(texts):
        return [text.title() for text in texts]


class Louder(Service):
    @batched(8)
    def shout(self, texts):
        several = super().shout.__wrapped__(self, texts)
        return [text + self.mark for text in several]

    @batched(8)
    def again(self, texts):
        return [super(Louder, self).shout(text) for text in texts]


def streamers_of(method):
    return len(method._streamers)


def test_each_object_has_a_streamer_of_its_own(run):
    one, other = Service("!"), Service("?")
    assert isinstance(one.shout, ThreadedStreamer)
    assert (one.shout("a", timeout=5), other.shout("a"), other.shout("b")) == ("A!", "A?", "B?")
    assert run(other.whisper("A")) == "a?"
    assert (one.shout.stats().completed, other.shout.stats().completed) == (1, 2)
    assert one.shout == one.shout
    assert len({one.shout, one.shout, other.shout}) == 2
    assert one.shout != other.shout
    one.shout.configure(batch_size=3)
    assert "batch_size=3" in repr(one.shout)
    assert "batch_size=8" in repr(other.shout)


@pytest.mark.parametrize(
    "ask",
    [
        lambda: Service().shout("a"),
        lambda: Service().shout.submit(["a"]).result(LONG)[0],
        lambda: next(Service().shout.stream("a")),
        lambda: next(Service().shout.map(["a"])),
    ],
)
def test_a_request_keeps_its_object(ask):
    assert ask() == "A!"


@freed_at_once
def test_a_request_in_the_queue_keeps_its_object():
    gate = Gate(double)

    class Gated:
        @batched(batch_size=1, worker_num=2)
        def predict(self, items):
            return gate(items)

    gated = Gated()
    gone = weakref.ref(gated)
    streams = [gated.predict.stream(each) for each in range(2)]
    futures = [gated.predict.submit([each]) for each in range(3)]
    del gated
    gate.open()
    assert [list(each) for each in streams] == [[0], [2]]
    assert [each.result(LONG) for each in futures] == [[0], [2], [4]]
    del streams
    eventually(lambda: gone() is None)


@freed_at_once
@pytest.mark.every_python
def test_the_streamer_goes_with_its_object_without_the_collector(started):
    gc.collect()
    gc.disable()
    try:
        for number in range(2000):
            service = Service(str(number))
            if number % 200 == 0:
                assert service.shout("a") == f"A{number}"
                assert next(service.spell.stream("a")) == "a"
            else:
                assert service.shout is not None
        gone = weakref.ref(service.shout._lasting)
        del service
        assert gone() is None
        # worker threads may still have the objects of their last batches
        eventually(lambda: streamers_of(Service.shout) == streamers_of(Service.spell) == 0)
        eventually(lambda: not started("service-streamer-worker"))
    finally:
        gc.enable()


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))]
)
def test_a_copy_has_a_streamer_of_its_own(copied):
    service = Service()
    service.shout("a")
    other = copied(service)
    other.mark = "?"
    assert (service.shout("a"), other.shout("a")) == ("A!", "A?")
    assert other.shout.stats().completed == 1


def test_it_is_pickled_as_a_bound_method_is():
    service = Service("?")
    assert pickle.loads(pickle.dumps(service.shout))("a") == "A?"
    assert copy.copy(service.shout) == service.shout


def capitals(self, texts):
    return [text.upper() for text in texts]


class Aliased:
    loud = batched(8)(capitals)


class AliasedAgain(Aliased):
    other = Aliased.loud


@pytest.mark.parametrize("kind", [Aliased, AliasedAgain])
def test_it_is_pickled_by_the_name_that_its_class_has_for_it(kind):
    assert pickle.loads(pickle.dumps(kind().loud))("a") == "A"


@freed_at_once
def test_a_method_is_not_called_without_its_object(monkeypatch, started):
    called = []
    kept = []
    submitted = threading.Event()

    class Model:
        @batched(8)
        def predict(self, items):
            called.append(self)
            return items

    def forget(level):  # right before the model runs
        if threading.current_thread().name == "service-streamer-worker":
            assert submitted.wait(LONG)
            kept.pop()._abandon()
            del kept[:]
        return False

    monkeypatch.setattr(logging.getLogger("service_streamer"), "isEnabledFor", forget)
    kept += [Model()]
    kept += [kept[0].predict.submit([1])]
    gone = weakref.ref(kept[0])
    submitted.set()
    eventually(lambda: not kept and not started("service-streamer-worker"))
    assert (gone(), called) == (None, [])


def test_subclasses():
    louder = Louder()
    assert louder.shout("a") == "A!!"
    assert louder.again("a") == "A!"  # by the streamer of the base class for this object
    assert Service.shout.__get__(louder).stats().completed == 1
    assert next(louder.spell.stream("a")) == "a"


def test_class_methods_and_static_methods():
    class Other(Service):
        pass

    for name in ("named", "named_below"):
        assert getattr(Service, name)("a") == "Servicea"
        assert getattr(Service(), name)("a") == "Servicea"
        assert getattr(Other, name)("a") == "Othera"
    assert Other.named.stats().completed == 1
    for name in ("plain", "plain_below"):
        assert getattr(Service, name)("a") == getattr(Service(), name)("a") == "A"
        assert getattr(Service, name) is getattr(Other, name)


def test_slots_without_weak_references():
    class Slotted:
        __slots__ = ("mark",)

        @batched(8)
        def predict(self, items):
            return items

    class Complete(Slotted):
        __slots__ = ("__weakref__",)

    with pytest.raises(TypeError) as raised:
        Slotted().predict(1)
    name = Slotted.__qualname__
    assert str(raised.value) == told(
        f"batched needs weak references to the objects of {name}.predict: add '__weakref__' to "
        f"the __slots__ of {name}",
        "batched-and-slots",
    )
    assert Complete().predict(1) == 1


@pytest.mark.every_python
def test_threads_that_use_an_object_first_share_its_streamer(threads):
    begin = threading.Barrier(8)

    def ask(service):
        begin.wait(LONG)
        return service.shout("a")

    services = [Service() for _ in range(5)]
    for _ in range(8):
        threads.run(lambda: [ask(each) for each in services])
    assert threads.join() == [["A!"] * 5] * 8
    assert [each.shout.stats().completed for each in services] == [8] * 5


def test_a_method_through_its_class():
    assert (Service.shout.__name__, Service.shout.__doc__) == ("shout", "Make capitals.")
    service = Service()
    assert Service.shout(service, "a") == "A!"
    assert Service.shout.__wrapped__(service, ["a"]) == ["A!"]
    assert service.shout.__doc__ == "Make capitals."
    with pytest.raises(AttributeError, match=r"Service\.shout has no apredict_one: each object"):
        Service.shout.apredict_one  # noqa: B018
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        Service.shout.nothing  # noqa: B018


def test_an_abstract_method():
    class Base(abc.ABC):
        @batched(8)
        @abc.abstractmethod
        def predict(self, items): ...

    class Model(Base):
        @batched(8)
        def predict(self, items):
            return items

    with pytest.raises(TypeError, match="abstract"):
        Base()
    assert Model().predict(1) == 1


def test_a_decorator_below_that_keeps_the_signature():
    def quiet(function):
        @functools.wraps(function)
        def wrapper(*args):
            return function(*args)

        return wrapper

    class Model:
        @batched(8)
        @quiet
        def spell(self, texts):
            yield from zip(*texts, strict=True)

    assert Model().spell("ab") == ["a", "b"]


def test_a_closed_streamer_stays_closed_for_its_object():
    service = Service()
    service.shout("a")
    service.shout.close()
    with pytest.raises(StreamerClosed):
        service.shout("a")
    assert "closed" in repr(service.shout)
    assert Service().shout("a") == "A!"


def test_monitors_follow_the_object():
    registry = pytest.importorskip("prometheus_client").CollectorRegistry()
    from service_streamer import metrics

    service = Service()
    metrics.register(service.shout, "shout", registry)
    service.shout("a")
    assert registry.get_sample_value("service_streamer_items_total", {"streamer": "shout"}) == 1


@pytest.mark.every_python
def test_an_object_that_was_forked(program):
    done = program(
        """
        import os, warnings
        from service_streamer import batched

        warnings.simplefilter("ignore", DeprecationWarning)  # fork with threads

        class Service:
            @batched(8)
            def double(self, items):
                return [2 * item for item in items]

            @batched(8)
            async def triple(self, items):
                return [3 * item for item in items]

        service = Service()
        assert service.double(1) == 2
        assert service.triple.predict_one(1) == 3
        pid = os.fork()
        assert service.double(2) == 4
        assert service.triple.predict_one(2) == 6
        if pid == 0:
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        print(service.double.stats().completed)
        """
    )
    assert done.stdout == "2\n"
