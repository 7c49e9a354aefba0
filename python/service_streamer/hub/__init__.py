"""Many models in one process, loaded when they are needed, within a budget of memory.

    >>> from service_streamer.hub import ModelHub, ModelSpec
    >>> hub = ModelHub({"sorted": ModelSpec(sorted, batch_size=64)}, max_loaded=8)
    >>> hub["sorted"].predict([1, 2])
    [1, 2]
    >>> hub.close()

How it works
------------
A request of a loaded model goes straight to its streamer, except `submit` and streams of a model in
a shared worker. Any other request goes through the `Lobby`, whose engine gives it its deadline, its
future and its cancellation, and waits there until the model is loaded.

- The thread of the lobby ("service-streamer-hub") hands requests to the `Loader`. It never blocks.
- The loader threads ("service-streamer-loader") make room, load and warm up. There are at most
  ``load_threads``, and none if there is nothing to load. Loads of models that run in this process
  are measured by its growth, so there is one of these at a time.
- A thread "service-streamer-unload" drains each version that leaves, so that a version whose
  requests never end does not hold up a load. A thread "service-streamer-drop" does so for each that
  goes out of service, after the end of its load.
- ``Loader.lock`` guards the models, their versions and their states, and the `Budget`, which knows
  the versions that hold room. No code of the user, no load, no close and no answer happens under
  it. Handles read the streamer of a version without it.
- The thread "service-streamer-watch" reads the folder of `ModelHub.watch` and tells the `Rollout`,
  which decides under a lock of its own. A loader thread switches to a version that it has loaded.
- Models may share worker processes; the page of `_sharing` tells how. The supervisor thread of such
  a process tells when it died while it ran a model, which moves after the second time.
- The code of a version is imported where it runs: by its worker processes, or in a `Namespace` of
  this process. A thread "service-streamer-install" makes the environment of the workers first, if
  there is none. There are at most ``load_threads`` of them, and no other load waits for them.
- A request in flight needs no lease: the engine of its streamer counts it, and closing a streamer
  answers what it has accepted. A request that comes too late was not accepted; the hub sends it
  again, to the streamer of the next load.
- `metrics` gets each new streamer by `HubView.watch`, and `otel` the requests by
  `HubView.start_tracing`. A request in the lobby has its span there; its context goes on with it.
"""

from __future__ import annotations

from ._errors import ModelLoadError, ModelTooLarge, NoParameters, NoRoomForModel, UnknownModel
from ._handle import ModelHandle
from ._hub import ModelHub
from ._spec import ModelSpec
from ._status import CanaryStatus, ModelStatus, VersionStatus, VersionView
from ._tensor_spec import TensorSpec
from ._view import HubView, view_of

__all__ = [
    "CanaryStatus",
    "HubView",
    "ModelHandle",
    "ModelHub",
    "ModelLoadError",
    "ModelSpec",
    "ModelStatus",
    "ModelTooLarge",
    "NoParameters",
    "NoRoomForModel",
    "TensorSpec",
    "UnknownModel",
    "VersionStatus",
    "VersionView",
    "view_of",
]

for _name in __all__:  # help() and tracebacks show the public import path
    globals()[_name].__module__ = __name__
del _name
