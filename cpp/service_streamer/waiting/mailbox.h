#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "service_streamer/base/mutex.h"
#include "service_streamer/base/system.h"

namespace service_streamer {

// Carries finished requests to an event loop (asyncio, gevent), which watches fd().
//
// Any thread may post; the thread of the loop drains. Neither call blocks, allocates or throws. Only the first message
// after a drain writes to the descriptor, so a batch of results wakes the loop once.
class Mailbox {
 public:
  // Made before its request can end, so that post() cannot run out of memory.
  struct Message {
    std::shared_ptr<Mailbox> to;
    void* value = nullptr;  // opaque; not nullptr
    Message* next = nullptr;
  };

  // Messages that were posted.
  class Messages {
   public:
    Messages(Message* first, std::size_t count) : first_(first), count_(count) {}
    ~Messages() {
      while (pop() != nullptr) {
      }
    }
    Messages(Messages&& other) noexcept
        : first_(std::exchange(other.first_, nullptr)), count_(std::exchange(other.count_, 0)) {}
    Messages& operator=(Messages&&) = delete;

    std::size_t size() const { return count_; }
    bool empty() const { return count_ == 0; }

    // Removes the oldest message and returns its value; nullptr if there is none.
    void* pop();

   private:
    Message* first_;
    std::size_t count_;
  };

  Mailbox();  // throws std::system_error if the process has no file descriptor left
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  int fd() const { return event_.reader; }

  // Posts the message to its mailbox, and drops its reference to that.
  static void post(std::unique_ptr<Message> message) noexcept;

  // Returns everything posted since the last call, in order. Afterwards fd() is not readable until the next post().
  Messages drain() noexcept EXCLUDES(mutex_);

  // Closes the descriptor. What is posted later is kept until the mailbox is destroyed. To be called by the thread that
  // drains. Idempotent.
  void close() EXCLUDES(mutex_);

  // Closes the descriptor in a forked child, without the lock. The object must not be used any more.
  void abandon() const { event_.close(); }

 private:
  bool add(Message* message) EXCLUDES(mutex_);
  void wake() EXCLUDES(mutex_);

  const Event event_;

  Mutex mutex_;
  Message* first_ GUARDED_BY(mutex_) = nullptr;
  Message* last_ GUARDED_BY(mutex_) = nullptr;
  std::size_t count_ GUARDED_BY(mutex_) = 0;
  int writers_ GUARDED_BY(mutex_) = 0;  // threads in wake()
  bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace service_streamer
