"""Small models of torch for the tests of native models, as files with their descriptions."""

import copy
import warnings

FLOATS = {
    "format": 1,
    "device": "cpu",
    "inputs": [{"name": "x", "dtype": "float32", "shape": ["batch", 3]}],
    "outputs": [{"name": "0", "dtype": "float32", "shape": ["batch", 3]}],
    "input_structure": "tensor",
    "output_structure": "tensor",
    "max_batch": 8,
    "dims": {"batch": [1, 8]},
}
"""vectors of three numbers; one more than three times each"""

SEQUENCES = {
    "format": 1,
    "device": "cpu",
    "inputs": [
        {"name": "ids", "dtype": "int64", "shape": ["batch", "sequence"]},
        {"name": "mask", "dtype": "int64", "shape": ["batch", "sequence"]},
    ],
    "outputs": [
        {"name": "seen", "dtype": "int64", "shape": ["batch", "sequence"]},
        {"name": "sum", "dtype": "int64", "shape": ["batch"]},
    ],
    "input_structure": "dict",
    "output_structure": "dict",
    "max_batch": 8,
    "dims": {"batch": [1, 8], "sequence": [1, 16]},
}
"""ids and a mask: each id where the mask is 1, and their sum"""

PAIRS = {
    "format": 1,
    "device": "cpu",
    "inputs": [
        {"name": "a", "dtype": "float32", "shape": ["batch", "length"]},
        {"name": "b", "dtype": "float32", "shape": ["batch", "length"]},
    ],
    "outputs": [
        {"name": "0", "dtype": "float32", "shape": ["batch", "length"]},
        {"name": "1", "dtype": "float32", "shape": ["batch"]},
    ],
    "input_structure": "tuple",
    "output_structure": "tuple",
    "max_batch": 8,
    "dims": {"batch": [1, 8], "length": [1, 16]},
}
"""two vectors: their sum, and their product"""


def changed(signature, **fields):
    return {**copy.deepcopy(signature), **fields}


def modules(torch):
    """The classes of the modules, by name."""

    class Floats(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 3 * x + 1

    class Conjugated(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x + 0).conj()

    class Sequences(torch.nn.Module):
        def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> dict[str, torch.Tensor]:
            seen = ids * mask
            return {"seen": seen, "sum": seen.sum(1)}

    class Pairs(torch.nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return a + b, (a * b).sum(1)

    class Picky(torch.nn.Module):
        """As Floats, but refuses 13, and takes much memory for 17."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if bool((x == 13).any()):
                raise ValueError("13 is bad luck")
            if bool((x == 17).any()):
                return x + torch.ones([1 << 46]).sum()
            return 3 * x + 1

    class Slow(torch.nn.Module):
        """As Floats, in some tenths of a second."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x.sum()
            for _ in range(100000):
                y = y * 1.0000001
            return 3 * x + 1 + 0 * y

    class Endless(torch.nn.Module):
        """As Floats, but never done with 13."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x
            while bool((y == 13).any()):
                y = torch.relu(y * 1.0)
            return 3 * x + 1

    class Lookup(torch.nn.Module):
        """A number for each of 0 to 19."""

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", torch.arange(100.0, 120.0))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.table[x.long()]

    class Bags(torch.nn.Module):
        """The sum of three of 20 rows, by an operator that looks at its indices itself."""

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", torch.arange(60.0).reshape(20, 3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.embedding_bag(x.long(), self.table, mode="sum")

    class Huge(torch.nn.Module):
        """Takes more memory than can be addressed."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sort(x.repeat(1, 1 << 45), 1)[0][:, :3]

    class Same(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    class Summed(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.sum(0, keepdim=True)

    class Crowd(torch.nn.Module):
        """Each item gets the sum of all that it is run with."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 0 * x + x.sum(0, keepdim=True)

    class Heavy(torch.nn.Module):
        """As Floats, with 60 MB of weights."""

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weights", torch.ones(15_000_000))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 3 * x + self.weights[0]

    kinds = (Floats, Sequences, Pairs, Picky, Slow, Endless, Lookup, Bags, Huge, Same, Summed)
    return {each.__name__: each for each in (*kinds, Conjugated, Crowd, Heavy)}


def save_script(torch, name, path):
    """Write a model as TorchScript."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.script(modules(torch)[name]()).save(str(path))


def save_package(torch, name, path, **options):
    """Write one of floats as a package of AOTInductor, with options of it; takes seconds."""
    batch = torch.export.Dim("batch", min=1, max=8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what torch itself uses
        program = torch.export.export(
            modules(torch)[name](), (torch.zeros(2, 3),), dynamic_shapes=({0: batch},)
        )
        torch._inductor.aoti_compile_and_package(
            program, package_path=str(path), inductor_configs=options
        )
