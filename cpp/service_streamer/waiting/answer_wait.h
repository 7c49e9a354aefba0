#pragma once

#include "service_streamer/base/clock.h"
#include "service_streamer/waiting/waiter.h"

namespace service_streamer::ipc {

// The sleep of a thread that waits for a request and watches a descriptor meanwhile, where its answer may come. For one thread at a time.
class AnswerWait {
 public:
  AnswerWait();  // throws std::system_error when no descriptor is left
  ~AnswerWait();
  AnswerWait(const AnswerWait&) = delete;
  AnswerWait& operator=(const AnswerWait&) = delete;

  // Who wakes it ends the sleep.
  Waiter& waiter() const { return waiter_; }

  // As Parker::park(); `readable`: whether there is something to read at `fd`, or its end. -1: no descriptor.
  Parker::Wake sleep(int fd, TimePoint deadline, bool& readable);

 private:
  int event_ = -1;
  Waiter& waiter_;
};

}  // namespace service_streamer::ipc
