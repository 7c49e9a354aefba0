#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "service_streamer/base/mutex.h"
#include "service_streamer/waiting/waiter.h"
#include "service_streamer/wire/message.h"
#include "service_streamer/wire/query.h"

namespace service_streamer::ipc {

// What a client process has asked its Server and was not told yet. ask() is called by any thread, the rest by the IO thread.
class PendingQueries {
 public:
  explicit PendingQueries(Waiter& to_wake) : waiter_(to_wake) {}

  // Blocks until told, the deadline, or a signal. kTimeout also at once when there is no connection, unless it is a question
  // that can wait for one.
  Completion::Wait query(const Query& query, QueryReply& reply, Waiter& waiter, TimePoint deadline) EXCLUDES(mutex_);

  // Whether there is a question that is worth a connection.
  bool any_to_send() EXCLUDES(mutex_);

  // The questions to be sent, as messages.
  std::vector<OutMessage> take() EXCLUDES(mutex_);

  // False: nothing of that number was asked.
  bool reply(std::uint64_t id, QueryReply reply);

  // There is no connection (any more): the questions that can wait will be sent again.
  void disconnected() EXCLUDES(mutex_);

  // No question is answered any more, also none that comes later.
  void close() EXCLUDES(mutex_);

 private:
  struct Entry {
    explicit Entry(const Query& question) : query(question) {}

    const Query query;
    std::atomic<bool> abandoned{false};
    bool answered = false;
    QueryReply reply;
    Completion done;
  };
  using EntryRef = std::shared_ptr<Entry>;

  static void settle(Entry& entry);

  Waiter& waiter_;

  // Of the IO thread.
  std::unordered_map<std::uint64_t, EntryRef> sent_;
  std::uint64_t last_id_ = 0;

  Mutex mutex_;
  std::vector<EntryRef> to_send_ GUARDED_BY(mutex_);
  bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace service_streamer::ipc
