import os

import pytest

from service_streamer.managed_model import ManagedModel


class Doubling(ManagedModel):
    def init_model(self, factor, offset=0):
        self.model = lambda x: factor * x + offset

    def predict(self, batch):
        return [self.model(x) for x in batch]


@pytest.fixture(autouse=True)
def own_environment(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "from outside")


def test_subclass_makes_its_model_and_predicts():
    model = Doubling()
    assert model.model is None
    model.init_model(2, offset=1)
    assert model.predict([1, 2]) == [3, 5]


@pytest.mark.parametrize(("gpu_id", "visible"), [(0, "0"), (3, "3"), ("0,1", "0,1"), ("", "")])
def test_gpu_id_becomes_the_visible_device(gpu_id, visible):
    model = Doubling(gpu_id)
    assert model.gpu_id == gpu_id
    assert os.environ["CUDA_VISIBLE_DEVICES"] == visible


def test_without_a_gpu_id_the_environment_stays():
    assert Doubling().gpu_id is None
    ManagedModel.set_gpu_id()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "from outside"


def test_set_gpu_id_needs_no_instance():
    ManagedModel.set_gpu_id(2)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "2"


def test_subclass_may_choose_its_device_in_its_own_way():
    chosen = []

    class OtherDevice(ManagedModel):
        @staticmethod
        def set_gpu_id(gpu_id=None):
            chosen.append(gpu_id)

    OtherDevice(gpu_id=1)
    assert chosen == [1]
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "from outside"


def test_what_a_subclass_leaves_out_is_named():
    class Unfinished(ManagedModel):
        pass

    with pytest.raises(NotImplementedError, match=r"Unfinished.*init_model"):
        Unfinished().init_model()
    with pytest.raises(NotImplementedError, match=r"Unfinished.*predict"):
        Unfinished().predict([1])
    assert repr(Unfinished(1)) == "Unfinished(gpu_id=1)"
