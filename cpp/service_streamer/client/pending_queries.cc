#include "service_streamer/client/pending_queries.h"

#include <utility>

namespace service_streamer::ipc {

Completion::Wait Asked::ask(const Ask& ask, Told& told, Waiter& waiter, TimePoint deadline) {
  const auto entry = std::make_shared<Entry>(ask);
  {
    MutexLock lock(mutex_);
    if (closed_) return Completion::Wait::kTimeout;
    to_send_.push_back(entry);
  }
  waiter_.parker.unpark();
  const Completion::Wait wait = entry->done.wait(waiter, deadline);
  if (wait != Completion::Wait::kDone) {
    entry->abandoned.store(true, std::memory_order_relaxed);
    return wait;
  }
  if (!entry->answered) return Completion::Wait::kTimeout;
  told = std::move(entry->told);
  return wait;
}

bool Asked::any_to_send() {
  MutexLock lock(mutex_);
  std::erase_if(to_send_, [](const EntryRef& entry) { return entry->abandoned.load(std::memory_order_relaxed); });
  return !to_send_.empty();
}

std::vector<OutMessage> Asked::take() {
  std::vector<EntryRef> entries;
  {
    MutexLock lock(mutex_);
    entries = std::exchange(to_send_, {});
  }
  std::vector<OutMessage> messages;
  messages.reserve(entries.size());
  for (EntryRef& entry : entries) {
    messages.push_back(make_opaque(MessageType::kAsk, ++last_id_, to_bytes(entry->ask)));
    sent_.emplace(last_id_, std::move(entry));
  }
  return messages;
}

bool Asked::told(std::uint64_t id, Told told) {
  const auto found = sent_.find(id);
  if (found == sent_.end()) return false;
  const EntryRef entry = std::move(found->second);
  sent_.erase(found);
  entry->told = std::move(told);
  entry->answered = true;
  settle(*entry);
  return true;
}

void Asked::disconnected() {
  std::vector<EntryRef> open;
  std::vector<EntryRef> hopeless;
  for (auto& [id, entry] : std::exchange(sent_, {})) open.push_back(std::move(entry));
  {
    MutexLock lock(mutex_);
    for (EntryRef& entry : to_send_) open.push_back(std::move(entry));
    to_send_.clear();
    for (EntryRef& entry : open) {
      const bool waits = entry->ask.question == Question::kWaitReady && !closed_;
      (waits ? to_send_ : hopeless).push_back(std::move(entry));
    }
  }
  for (const EntryRef& entry : hopeless) settle(*entry);
}

void Asked::close() {
  {
    MutexLock lock(mutex_);
    closed_ = true;
  }
  disconnected();
}

void Asked::settle(Entry& entry) {
  WakeChain chain(1);
  chain.publish(entry.done);
  chain.wake();
}

}  // namespace service_streamer::ipc
