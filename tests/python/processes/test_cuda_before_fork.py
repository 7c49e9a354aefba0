"""CUDA that was initialised before a fork: refused, or reported with the error of torch."""

import pytest
from told import told

SIMULATED = """
    import os, re, sys, types

    torch = sys.modules["torch"] = types.ModuleType("torch")
    torch.cuda = types.ModuleType("torch.cuda")
    parent = os.getpid()
    torch.cuda.is_initialized = lambda: os.getpid() == parent

    from service_streamer import ManagedModel, Streamer, ThreadedStreamer

    def needs_cuda(batch):
        raise RuntimeError("Cannot re-initialize CUDA in forked subprocess")

    class Loads(ManagedModel):
        def init_model(self):
            needs_cuda([])

    def tell(use):
        try:
            use()
        except Exception as error:
            text = error.__cause__ if type(error) is RuntimeError else error
            text = str(text).replace(f"process {parent}", "process PARENT")
            print(re.sub(r"process \\d+", "process CHILD", text))

    def forked(model):
        with Streamer(model, 8, mp_start_method="fork") as streamer:
            tell(lambda: streamer.predict([1]))
"""
UNUSABLE = told(
    "process PARENT had initialised CUDA when process CHILD was forked from it: use "
    'mp_start_method="spawn", or load the model after the fork',
    "cuda-before-a-fork",
)


@pytest.mark.parametrize(
    ("use", "text"),
    [
        (
            'tell(lambda: Streamer(Loads, 8, cuda_devices=(1,), mp_start_method="fork"))',
            told(
                'cuda_devices=(1,) with mp_start_method="fork": this process has initialised CUDA, '
                'so forked workers cannot use it: use "spawn", or create the workers before CUDA '
                "is used",
                "cuda-before-a-fork",
            ),
        ),
        ("forked(needs_cuda)", UNUSABLE),
        ("forked(Loads)", UNUSABLE),
        (
            "streamer = ThreadedStreamer(needs_cuda, 8)\n"
            "    if os.fork() == 0: tell(lambda: streamer.predict([1]))\n"
            "    else: os.wait()",
            UNUSABLE,
        ),
    ],
    ids=["devices", "at a request", "at the load", "threads"],
)
def test_cuda_before_a_fork_is_reported(program, use, text):
    assert text in program(SIMULATED + "\n    " + use).stdout
