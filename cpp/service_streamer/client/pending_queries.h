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

// The queries of a client process that have no reply yet. Any thread may call query(); the IO thread calls the other
// methods.
class PendingQueries {
 public:
  explicit PendingQueries(Waiter& to_wake) : waiter_(to_wake) {}

  // Blocks until the reply, the deadline or a signal. A signal does not end the queries about recordings, because a
  // second query would get another reply. Also returns kTimeout when there is no connection, except for kWaitReady,
  // which waits for the next one.
  Completion::Wait query(const Query& query, QueryReply& reply, Waiter& waiter, TimePoint deadline) EXCLUDES(mutex_);

  // Returns whether a query waits to be sent.
  bool has_unsent() EXCLUDES(mutex_);

  // Returns the queries to be sent, as messages.
  std::vector<OutMessage> take_unsent() EXCLUDES(mutex_);

  // Completes a query. False: there is no query with this id.
  bool reply(std::uint64_t id, QueryReply reply);

  // To be called when there is no connection. kWaitReady queries will be sent again; all others end with kTimeout.
  void disconnected() EXCLUDES(mutex_);

  // All queries, also later ones, end with kTimeout.
  void close() EXCLUDES(mutex_);

 private:
  struct Entry {
    explicit Entry(const Query& its_query) : query(its_query) {}

    const Query query;
    std::atomic<bool> abandoned{false};
    bool answered = false;
    QueryReply reply;
    Completion done;
  };
  using EntryRef = std::shared_ptr<Entry>;

  static void complete(Entry& entry);

  Waiter& waiter_;

  // Used by the IO thread only.
  std::unordered_map<std::uint64_t, EntryRef> sent_;
  std::uint64_t last_id_ = 0;

  Mutex mutex_;
  std::vector<EntryRef> unsent_ GUARDED_BY(mutex_);
  bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace service_streamer::ipc
