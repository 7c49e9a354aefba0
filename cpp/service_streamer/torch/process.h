#pragma once

#include <mutex>

namespace service_streamer::torch_backend {

// What torch does for the whole process, and so must not do twice at a time: the constructors of two packages crash each other.
std::mutex& process_lock();

// For a forked child: another thread of its parent's may have held it.
void renew_process_lock();

// Has the calling thread compute with so many threads, and no other one: torch would give threads that start later the same number.
// So may this, to one that first asks while this runs.
void set_intra_op_threads(int count);

}  // namespace service_streamer::torch_backend
