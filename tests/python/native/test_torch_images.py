"""normalize_images: uint8 images become inputs of networks."""

import pytest

pytest_plugins = ["batched_fixtures"]
pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("batching")]


@pytest.fixture
def normalize(torch):
    from service_streamer.torch import normalize_images

    return normalize_images


def plain(torch, images, mean, std):
    channels_first = images.permute(0, 3, 1, 2).double() / 255
    means, deviations = (torch.tensor(each).view(1, -1, 1, 1) for each in (mean, std))
    return (channels_first - means) / deviations


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_images_equal_the_reference_computation(torch, normalize, channels, dtype):
    images = torch.randint(0, 256, (2, 13, 9, channels), dtype=torch.uint8)
    mean, std = [0.4, 0.5, 0.6, 0.7][:channels], [0.2, 0.3, 0.4, 0.5][:channels]
    found = normalize(images, mean=mean, std=std, dtype=dtype)
    assert found.dtype == getattr(torch, dtype)
    assert found.is_contiguous()
    wanted = plain(torch, images, mean, std)
    torch.testing.assert_close(
        found.double(), wanted, rtol=1e-5 if dtype == "float32" else 1e-3, atol=1e-3
    )


def test_lists_arrays_and_views_are_accepted(torch, normalize):
    images = torch.randint(0, 256, (2, 8, 8, 3), dtype=torch.uint8)
    wanted = normalize(images)
    assert torch.equal(normalize(images.numpy()), wanted)
    assert torch.equal(normalize([images[0].numpy(), images[1]]), wanted)
    turned = images.permute(0, 2, 1, 3)  # not contiguous
    assert torch.equal(normalize(turned), wanted.permute(0, 1, 3, 2))


def test_white_and_black_of_imagenet(torch, normalize):
    black, white = torch.zeros(1, 1, 1, 3), torch.full((1, 1, 1, 3), 255)
    found = normalize(torch.cat([black, white]).to(torch.uint8)).flatten().tolist()
    assert found == pytest.approx(
        [
            -0.485 / 0.229,
            -0.456 / 0.224,
            -0.406 / 0.225,
            0.515 / 0.229,
            0.544 / 0.224,
            0.594 / 0.225,
        ],
        rel=1e-5,
    )


def test_an_empty_batch_gives_an_empty_tensor(torch, normalize):
    assert normalize(torch.zeros(0, 4, 4, 3, dtype=torch.uint8)).shape == (0, 3, 4, 4)


def test_an_empty_list_is_refused(torch, normalize):
    with pytest.raises(ValueError, match=r"images must .*, not \[\]"):
        normalize([])


def test_images_of_several_sizes_are_refused_with_the_sizes(torch, normalize):
    small, large = (torch.zeros(*size, 3, dtype=torch.uint8) for size in ((4, 5), (8, 8)))
    sizes = r"images\[0\] has \(4, 5, 3\), images\[2\] has \(8, 8, 3\)"
    for images in ([small, small, large], (small.numpy(), small.numpy(), large.numpy())):
        with pytest.raises(ValueError, match=sizes):
            normalize(images)


@pytest.mark.parametrize(
    ("shape", "dtype", "options", "error", "message"),
    [
        ((1, 4, 4, 3), "float32", {}, TypeError, "images must be uint8, not float32"),
        ((4, 4, 3), "uint8", {}, ValueError, r"must have the shape .*, not \(4, 4, 3\)"),
        ((1, 3, 4, 5), "uint8", {}, ValueError, "up to 4 channels"),
        ((1, 4, 4, 1), "uint8", {}, ValueError, "mean must have .*1.*, not 3"),
        ((1, 4, 4, 3), "uint8", {"std": (1, 0, 1)}, ValueError, "std must be above 0"),
        ((1, 4, 4, 3), "uint8", {"dtype": "int8"}, ValueError, "dtype must be one of float32"),
    ],
)
def test_a_wrong_argument_is_named(torch, normalize, shape, dtype, options, error, message):
    with pytest.raises(error, match=message):
        normalize(torch.zeros(shape, dtype=getattr(torch, dtype)), **options)
