"""Small modules for `service_streamer.torch.compile`, each for one form of inputs and outputs."""

import pytest

WIDTH = 8

# what each test of it needs
MARKS = [
    pytest.mark.torch,
    pytest.mark.timeout(600),  # AOTInductor compiles C++
    # torch warns of TorchScript, and of parts that it uses itself
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    # a trace warns that it may be wrong: whether it is, is what the tests look at
    pytest.mark.filterwarnings("ignore:Using len to get tensor shape"),
    pytest.mark.filterwarnings("ignore:Converting a tensor to a Python"),
]


def make_modules(torch):
    """Functions that make them, by the names of the classes."""
    nn = torch.nn

    class Encoder(nn.Module):
        """ids and mask to a vector for each sentence and one for each token."""

        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(50, WIDTH)
            self.linear = nn.Linear(WIDTH, WIDTH)

        def forward(self, ids, mask):
            tokens = self.linear(self.words(ids))
            weights = mask[:, :, None].to(tokens.dtype)
            pooled = (tokens * weights).sum(1) / weights.sum(1)
            return {"pooled": pooled, "tokens": tokens}

    class Scaled(nn.Module):
        def forward(self, x, scale=None, shift=None):
            x = x if scale is None else x * scale
            return x if shift is None else x + shift

    class Many(nn.Module):
        """Any number of inputs, outputs of several types, one of them shorter than its input."""

        def forward(self, *inputs):
            (x, y) = inputs
            return [x.argmax(-1), x[:, ::2].half(), y.sum(-1, keepdim=True) > 0]

    class Doubled(nn.Module):
        """Python decides by the size of the batch: a trace knows one way only."""

        def forward(self, x):
            return x * 2 if len(x) > 1 else x

    class Fixed(nn.Module):
        """One size of the batch is written into the module."""

        def forward(self, x):
            return x.reshape(4, -1).sum(1)

    class Ids(nn.Module):
        """Its sequence has the length of its table, nothing else."""

        def __init__(self):
            super().__init__()
            self.positions = nn.Parameter(torch.randn(6, WIDTH))
            self.words = nn.Embedding(50, WIDTH)

        def forward(self, ids):
            return self.words(ids) + self.positions

    class Namespace:
        pass

    torch.manual_seed(0)
    namespace = Namespace()
    for module in (Encoder, Scaled, Many, Doubled, Fixed, Ids):
        setattr(namespace, module.__name__, lambda module=module: module().eval())
    namespace.Mlp = lambda: nn.Sequential(
        nn.Linear(4, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 3)
    ).eval()
    return namespace
