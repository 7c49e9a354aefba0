"""Whether the core is a build for other systems than Linux, which has threads only."""

import service_streamer

PORTABLE = not hasattr(service_streamer._core, "Server")
