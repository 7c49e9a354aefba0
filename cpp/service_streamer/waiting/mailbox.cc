#include "service_streamer/waiting/mailbox.h"

#include <utility>

namespace service_streamer {
Mailbox::Mailbox() : event_(open_event()) {}

Mailbox::~Mailbox() {
  close();
  drain();
}

void* Mailbox::Messages::pop() {
  if (first_ == nullptr) return nullptr;
  const std::unique_ptr<Message> oldest(first_);
  first_ = oldest->next;
  --count_;
  return oldest->value;
}

void Mailbox::post(std::unique_ptr<Message> message) noexcept {
  const std::shared_ptr<Mailbox> to = std::move(message->to);
  if (to->add(message.release())) to->wake();
}

Mailbox::Messages Mailbox::drain() noexcept {
  MutexLock lock(mutex_);
  // A thread in wake() may write after this. That causes an extra wake-up, never a lost one.
  if (!closed_) event_.clear();
  return {std::exchange(first_, nullptr), std::exchange(count_, 0)};
}

void Mailbox::close() {
  MutexLock lock(mutex_);
  if (!std::exchange(closed_, true) && writers_ == 0) event_.close();
}

// Returns whether the caller must wake the loop.
bool Mailbox::add(Message* message) {
  MutexLock lock(mutex_);
  (first_ == nullptr ? first_ : last_->next) = message;
  last_ = message;
  if (++count_ > 1 || closed_) return false;
  ++writers_;
  return true;
}

// Writes without the lock, because the woken thread takes it. close() leaves the descriptor to the last writer.
void Mailbox::wake() {
  event_.set();
  MutexLock lock(mutex_);
  if (--writers_ == 0 && closed_) event_.close();
}

}  // namespace service_streamer
