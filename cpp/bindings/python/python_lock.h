#pragma once

namespace service_streamer::bindings {

// With SERVICE_STREAMER_PORTABLE: from now on threads sleep on locks of Python, where signals interrupt them.
void sleep_on_python_locks();

}  // namespace service_streamer::bindings
