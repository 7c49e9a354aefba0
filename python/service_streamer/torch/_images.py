"""Images as models want them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ._module import load_module

if TYPE_CHECKING:
    from torch import Tensor, device

_MOST_CHANNELS = 4
_DTYPES = ("float32", "float16")


def normalize_images(
    images: Any,
    *,
    mean: Sequence[float] = (0.485, 0.456, 0.406),
    std: Sequence[float] = (0.229, 0.224, 0.225),
    dtype: str = "float32",
    device: str | device | None = None,
) -> Tensor:
    """Turn images of bytes into numbers: ``(image / 255 - mean) / std``, with channels first.

    On a GPU this is one kernel, and what is copied there are the bytes: a quarter of the numbers.

    Args:
        images: uint8 of the shape (images, rows, columns, channels), a tensor or an array; or a
            list of images of one size.
        mean: of each channel, as is `std`, where white is 1; those of ImageNet by default.
        dtype: of the result: "float32" or "float16".
        device: where the result is wanted; None: where the images are.

    Returns:
        A tensor of the shape (images, channels, rows, columns).

    Raises:
        TypeError: they are not uint8.
        ValueError: they have another shape, or are a list of several sizes, or of nothing; or
            `mean` and `std` are not for their channels.
        ImportError: torch is missing, or the module for it is.
    """
    import torch

    module = load_module()
    if dtype not in _DTYPES:
        raise ValueError(f"dtype must be one of {', '.join(_DTYPES)}, not {dtype!r}")
    batch = _stack(images) if isinstance(images, list | tuple) else torch.as_tensor(images)
    if batch.dtype != torch.uint8:
        raise TypeError(f"images must be uint8, not {str(batch.dtype).removeprefix('torch.')}")
    if batch.dim() != 4 or not 1 <= batch.shape[3] <= _MOST_CHANNELS:
        raise ValueError(
            "images must have the shape (images, rows, columns, channels) with up to "
            f"{_MOST_CHANNELS} channels, not {tuple(batch.shape)}"
        )
    channels = batch.shape[3]
    for name, values in (("mean", mean), ("std", std)):
        if len(values) != channels:
            raise ValueError(f"{name} has {len(values)} numbers, the images {channels} channels")
    if not all(value > 0 for value in std):
        raise ValueError(f"std must be above 0, not {tuple(std)}")
    if device is not None:
        batch = batch.to(device)
    scale = [1 / (255 * deviation) for deviation in std]
    shift = [-middle / deviation for middle, deviation in zip(mean, std, strict=True)]
    result: Tensor = module.normalize_images(batch.contiguous(), scale, shift, dtype == "float16")
    return result


def _stack(images: Sequence[Any]) -> Tensor:
    import torch

    if not images:
        raise ValueError(f"images must be at least one image, not {images!r}")
    tensors = [torch.as_tensor(image) for image in images]
    size = tensors[0].shape
    for place, tensor in enumerate(tensors):
        if tensor.shape != size:
            raise ValueError(
                f"images must all have one size: images[0] has {tuple(size)}, images[{place}] has "
                f"{tuple(tensor.shape)}; resize them first"
            )
    return torch.stack(tensors)
