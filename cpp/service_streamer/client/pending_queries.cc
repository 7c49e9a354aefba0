#include "service_streamer/client/pending_queries.h"

#include <utility>

namespace service_streamer::ipc {
namespace {

// Whether the Server replies to the same query again with the same reply.
bool can_be_repeated(QueryKind kind) {
  return kind != QueryKind::kStartRecording && kind != QueryKind::kFinishRecording;
}

}  // namespace

Completion::Wait PendingQueries::query(const Query& query, QueryReply& reply, Waiter& waiter, TimePoint deadline) {
  const auto entry = std::make_shared<Entry>(query);
  {
    MutexLock lock(mutex_);
    if (closed_) return Completion::Wait::kTimeout;
    unsent_.push_back(entry);
  }
  waiter_.parker.unpark();
  Completion::Wait wait = entry->done.wait(waiter, deadline);
  while (wait == Completion::Wait::kInterrupted && !can_be_repeated(query.kind)) {
    wait = entry->done.wait(waiter, deadline);
  }
  if (wait != Completion::Wait::kDone) {
    entry->abandoned.store(true, std::memory_order_relaxed);
    return wait;
  }
  if (!entry->answered) return Completion::Wait::kTimeout;
  reply = std::move(entry->reply);
  return wait;
}

bool PendingQueries::has_unsent() {
  MutexLock lock(mutex_);
  std::erase_if(unsent_, [](const EntryRef& entry) { return entry->abandoned.load(std::memory_order_relaxed); });
  return !unsent_.empty();
}

std::vector<OutMessage> PendingQueries::take_unsent() {
  std::vector<EntryRef> entries;
  {
    MutexLock lock(mutex_);
    entries = std::exchange(unsent_, {});
  }
  std::vector<OutMessage> messages;
  messages.reserve(entries.size());
  for (EntryRef& entry : entries) {
    messages.push_back(make_query(++last_id_, entry->query));
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
  complete(*entry);
  return true;
}

void PendingQueries::disconnected() {
  std::vector<EntryRef> unanswered;
  std::vector<EntryRef> unanswerable;
  for (auto& [id, entry] : std::exchange(sent_, {})) unanswered.push_back(std::move(entry));
  {
    MutexLock lock(mutex_);
    for (EntryRef& entry : unsent_) unanswered.push_back(std::move(entry));
    unsent_.clear();
    for (EntryRef& entry : unanswered) {
      const bool waits = entry->query.kind == QueryKind::kWaitReady && !closed_;
      (waits ? unsent_ : unanswerable).push_back(std::move(entry));
    }
  }
  for (const EntryRef& entry : unanswerable) complete(*entry);
}

void PendingQueries::close() {
  {
    MutexLock lock(mutex_);
    closed_ = true;
  }
  disconnected();
}

void PendingQueries::complete(Entry& entry) {
  WakeQueue::instance().publish(entry.done);
  WakeQueue::instance().wake();
}

}  // namespace service_streamer::ipc
