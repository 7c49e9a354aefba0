#pragma once

#include <mutex>

namespace service_streamer::torch_backend {

// Serializes operations of torch that affect the whole process. Loading two AOTInductor packages at the same time can
// crash.
std::mutex& process_lock();

// To be called in a forked child: a thread of the parent may have held the lock.
void renew_process_lock();

// Sets the number of intra-op threads of the calling thread only. torch applies the last number set to all threads that
// start later, so this function restores it. A thread that starts during the call may still get the new number.
void set_intra_op_threads(int count);

}  // namespace service_streamer::torch_backend
