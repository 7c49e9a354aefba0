"""Converts images to the inputs of models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .._base.messages import wrong_option
from ._batching import load_batching
from ._module import load_kernels

if TYPE_CHECKING:
    from torch import Tensor, device

_MAX_CHANNELS = 4
_DTYPES = ("float32", "float16")


def normalize_images(
    images: Any,
    *,
    mean: Sequence[float] = (0.485, 0.456, 0.406),
    std: Sequence[float] = (0.229, 0.224, 0.225),
    dtype: str = "float32",
    device: str | device | None = None,
) -> Tensor:
    """Convert uint8 images to ``(image / 255 - mean) / std`` with the channels first.

    Only the uint8 values are copied to a GPU. There this is one kernel, if
    ``python -m service_streamer.build_torch`` was run where ``nvcc`` is.

    Args:
        images: a uint8 tensor or array of the shape (images, rows, columns, channels), or a list
            of images of the same size.
        mean, std: one value for each channel, for images with values from 0 to 1. The defaults are
            those of ImageNet.
        dtype: the type of the result: "float32" or "float16".
        device: the device of the result; None: the device of the images.

    Returns:
        A tensor of the shape (images, channels, rows, columns).

    Raises:
        TypeError: the images are not uint8.
        ValueError: the shape is wrong, a list is empty or has images of several sizes, or `mean`
            or `std` does not have one value for each channel.
        ImportError: torch is missing, or older than 2.2.

    Example:
        >>> import torch
        >>> images = torch.zeros(2, 32, 32, 3, dtype=torch.uint8)
        >>> normalize_images(images, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5)).shape
        torch.Size([2, 3, 32, 32])
    """
    import torch

    module = load_batching()
    if dtype not in _DTYPES:
        raise wrong_option(f"dtype must be one of {', '.join(_DTYPES)}, not {dtype!r}")
    batch = _stack(images) if isinstance(images, list | tuple) else torch.as_tensor(images)
    if batch.dtype != torch.uint8:
        raise TypeError(f"images must be uint8, not {str(batch.dtype).removeprefix('torch.')}")
    if batch.dim() != 4 or not 1 <= batch.shape[3] <= _MAX_CHANNELS:
        raise ValueError(
            "images must have the shape (images, rows, columns, channels) with up to "
            f"{_MAX_CHANNELS} channels, not {tuple(batch.shape)}"
        )
    channels = batch.shape[3]
    for name, values in (("mean", mean), ("std", std)):
        if len(values) != channels:
            raise wrong_option(
                f"{name} must have one value for each channel ({channels}), not {len(values)}"
            )
    if not all(value > 0 for value in std):
        raise wrong_option(f"std must be above 0, not {tuple(std)}")
    if device is not None:
        batch = batch.to(device)
    scale = [1 / (255 * deviation) for deviation in std]
    shift = [-middle / deviation for middle, deviation in zip(mean, std, strict=True)]
    if batch.is_cuda:
        module = load_kernels() or module
    result: Tensor = module.normalize_images(batch.contiguous(), scale, shift, dtype == "float16")
    return result


def _stack(images: Sequence[Any]) -> Tensor:
    import torch

    if not images:
        raise ValueError(f"images must contain at least one image, not {images!r}")
    tensors = [torch.as_tensor(image) for image in images]
    size = tensors[0].shape
    for index, tensor in enumerate(tensors):
        if tensor.shape != size:
            raise ValueError(
                f"images must all have the same size: images[0] has {tuple(size)}, "
                f"images[{index}] has {tuple(tensor.shape)}; resize them first"
            )
    return torch.stack(tensors)
