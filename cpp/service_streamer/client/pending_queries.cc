#include "service_streamer/client/pending_queries.h"

#include <utility>

namespace service_streamer::ipc {

Completion::Wait PendingQueries::query(const Query& query, QueryReply& reply, Waiter& waiter, TimePoint deadline) {
  const auto entry = std::make_shared<Entry>(query);
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
  reply = std::move(entry->reply);
  return wait;
}

bool PendingQueries::any_to_send() {
  MutexLock lock(mutex_);
  std::erase_if(to_send_, [](const EntryRef& entry) { return entry->abandoned.load(std::memory_order_relaxed); });
  return !to_send_.empty();
}

std::vector<OutMessage> PendingQueries::take() {
  std::vector<EntryRef> entries;
  {
    MutexLock lock(mutex_);
    entries = std::exchange(to_send_, {});
  }
  std::vector<OutMessage> messages;
  messages.reserve(entries.size());
  for (EntryRef& entry : entries) {
    messages.push_back(make_ask(++last_id_, entry->query));
    sent_.emplace(last_id_, std::move(entry));
  }
  return messages;
}

bool PendingQueries::reply(std::uint64_t id, QueryReply reply) {
  const auto found = sent_.find(id);
  if (found == sent_.end()) return false;
  const EntryRef entry = std::move(found->second);
  sent_.erase(found);
  entry->reply = std::move(reply);
  entry->answered = true;
  settle(*entry);
  return true;
}

void PendingQueries::disconnected() {
  std::vector<EntryRef> open;
  std::vector<EntryRef> hopeless;
  for (auto& [id, entry] : std::exchange(sent_, {})) open.push_back(std::move(entry));
  {
    MutexLock lock(mutex_);
    for (EntryRef& entry : to_send_) open.push_back(std::move(entry));
    to_send_.clear();
    for (EntryRef& entry : open) {
      const bool waits = entry->query.question == QueryKind::kWaitReady && !closed_;
      (waits ? to_send_ : hopeless).push_back(std::move(entry));
    }
  }
  for (const EntryRef& entry : hopeless) settle(*entry);
}

void PendingQueries::close() {
  {
    MutexLock lock(mutex_);
    closed_ = true;
  }
  disconnected();
}

void PendingQueries::settle(Entry& entry) {
  WakeQueue::instance().publish(entry.done);
  WakeQueue::instance().wake();
}

}  // namespace service_streamer::ipc
