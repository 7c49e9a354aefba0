#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "service_streamer/base/file_descriptor.h"
#include "service_streamer/base/mutex.h"
#include "service_streamer/calls/serialized_call.h"
#include "service_streamer/client/cancelled_requests.h"
#include "service_streamer/client/client_link.h"
#include "service_streamer/client/pending_queries.h"
#include "service_streamer/transport/peer.h"
#include "service_streamer/transport/poller.h"

namespace service_streamer::ipc {

// The IO thread of a ClientLink, and its connection.
class ClientLink::Impl {
 public:
  Impl(Engine& engine, std::string address, const ClientLinkOptions& options);
  ~Impl() { stop(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  bool from_this_process() const { return generation_ == ForkLock::generation(); }
  void start(bool connect_now) EXCLUDES(life_);
  void stop() EXCLUDES(life_);
  PendingQueries& pending_queries() { return pending_queries_; }
  std::string connect_error() const EXCLUDES(connect_error_mutex_);

 private:
  static constexpr Duration kFirstBackOff = std::chrono::milliseconds(10);
  static constexpr Duration kMaxBackOff = std::chrono::seconds(1);

  void run();
  TimePoint forward_queued();
  void forward();
  bool wants_connection() { return has_reservation_ || pending_queries_.has_unsent(); }
  bool connect(TimePoint now);
  TimePoint end_overdue(TimePoint now);
  void set_connect_error(std::string words) EXCLUDES(connect_error_mutex_) {
    MutexLock lock(connect_error_mutex_);
    connect_error_ = std::move(words);
  }
  void close_engine();
  void send_controls();
  void receive();
  bool handle_message(InMessage& message);
  bool handle_results(InMessage& message);
  Outcome local_outcome(LocalCall& call, Outcome reply) const;
  void return_all_untaken();
  void return_untaken(std::vector<std::pair<std::uint64_t, LocalCall*>> untaken,
                      std::vector<Engine::Returned>& returned);
  void disconnect(Outcome outcome);
  void take_back(const std::vector<Engine::Returned>& returned);
  void shut_down();

  // Constant after construction.
  Engine& engine_;
  const std::string address_;
  const ClientLinkOptions options_;
  const std::uint32_t generation_ = ForkLock::generation();

  // Used by the IO thread, or with their own synchronisation.
  Poller poller_;
  PendingQueries pending_queries_{poller_.waiter()};
  const std::shared_ptr<CancelledRequests> cancelled_requests_ = std::make_shared<CancelledRequests>(poller_.waiter());
  Engine::IdleWorker idle_{poller_.waiter()};
  std::unique_ptr<Peer> server_;  // nullptr: not connected
  bool greeted_once_ = false;     // a server has said hello
  Duration back_off_ = kFirstBackOff;
  TimePoint connect_at_ = TimePoint::min();
  std::unordered_map<std::uint64_t, LocalCall*> forwarded_;  // by id; the engine keeps each alive
  std::uint64_t last_id_ = 0;
  bool has_reservation_ = false;  // start_waiting() has returned kBatch; forward() or decline() must follow
  bool received_hello_ = false;
  std::uint64_t dropped_bytes_ = 0;  // size of a message that was dropped for lack of memory
  bool server_closing_ = false;      // the server accepts no more requests, but may still send results

  std::atomic<bool> stopping_{false};

  mutable Mutex connect_error_mutex_;
  std::string connect_error_ GUARDED_BY(connect_error_mutex_);

  Mutex life_;
  bool stopped_ GUARDED_BY(life_) = false;
  std::thread thread_ GUARDED_BY(life_);
};

}  // namespace service_streamer::ipc
