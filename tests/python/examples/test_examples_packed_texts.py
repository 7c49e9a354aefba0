"""The encoder of packed texts: its vectors are those of padded batches."""

import random
import re
import sys
from pathlib import Path

import pytest
from torch_examples import marks

pytestmark = marks("torch")

FOLDER = Path(__file__).parents[3] / "examples" / "packed_texts"


@pytest.fixture(scope="module")
def example(torch):
    sys.path.insert(0, str(FOLDER))
    sys.modules.pop("encoder", None)  # another example has a module of this name
    import encoder

    yield encoder
    sys.path.remove(str(FOLDER))
    del sys.modules["encoder"]


@pytest.mark.parametrize("count", [1, 2, 65])
def test_packed_and_padded_vectors_are_equal(torch, example, count):
    encoder, dice = example.make_encoder(), random.Random(count)
    texts = [example.text(dice) for _ in range(count)]
    with example.padded_streamer(encoder, None) as padded:
        expected = torch.stack(padded.predict(texts))
    with example.packed_streamer(encoder) as packed:
        received = torch.stack(packed.predict(texts))
        alone = torch.stack([packed.predict_one(text) for text in texts[:3]])
    torch.testing.assert_close(received, expected, rtol=0, atol=1e-5)
    torch.testing.assert_close(alone, expected[:3], rtol=0, atol=1e-5)


def test_the_example_by_itself_says_how_far_they_differ(example, capsys):
    example.main()
    printed = capsys.readouterr().out
    assert re.search(r"64 texts of \d+ to \d+ tokens", printed)
    assert float(re.search(r"at most (\S+)", printed)[1]) <= 1e-5
