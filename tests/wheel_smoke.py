"""What must work right after `pip install service-streamer-ng` with nothing else installed.

`make test-wheel` runs it in a clean environment.
"""

from importlib.metadata import distribution
from pathlib import Path

import service_streamer

installed = distribution("service-streamer-ng")
assert service_streamer.__version__ == installed.version

base_dependencies = [need for need in installed.requires or [] if "extra ==" not in need]
assert base_dependencies == [], base_dependencies

package = Path(service_streamer.__file__).parent
assert "site-packages" in package.parts, package
for name in (
    *("py.typed", "_core.pyi", "_src/CMakeLists.txt", "_src/cpp/service_streamer"),
    *("web/static/index.html", "web/static/vendor/LICENSE.txt"),
):
    assert (package / name).exists(), f"{name} is missing from the wheel"
assert list(package.glob("_torch.*.so")), "the module for torch is missing from the wheel"


def double(batch: list[int]) -> list[int]:
    return [2 * x for x in batch]


with service_streamer.ThreadedStreamer(double, batch_size=8) as streamer:
    assert streamer.predict([1, 2, 3]) == [2, 4, 6]
    assert streamer.submit([4]).result(timeout=10) == [8]

print(f"service-streamer {installed.version}: the wheel installs and works by itself")
