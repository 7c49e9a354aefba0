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

// The thread of a ClientLink, and its connection.
class ClientLink::Impl {
 public:
  Impl(Engine& engine, std::string address, bool owner_returns);
  ~Impl() { stop(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  bool from_this_process() const { return generation_ == ForkLock::generation(); }
  void start(bool connect_now) EXCLUDES(life_);
  void stop() EXCLUDES(life_);
  PendingQueries& asked() { return pending_queries_; }
  std::string absence() const EXCLUDES(absence_mutex_);

 private:
  static constexpr Duration kFirstBackOff = std::chrono::milliseconds(10);
  static constexpr Duration kLastBackOff = std::chrono::seconds(1);

  void run();
  TimePoint pull();
  void forward();
  bool wants_connection() { return promised_ || pending_queries_.any_to_send(); }
  void connect(TimePoint now);
  void set_absence(std::string words) EXCLUDES(absence_mutex_);
  void close_engine();
  void send_small();
  void receive();
  bool understand(InMessage& message);
  bool take_results(InMessage& message);
  Outcome ends_as(LocalCall& call, Outcome reply) const;
  void return_all_untaken();
  void return_untaken(std::vector<std::pair<std::uint64_t, LocalCall*>> untaken,
                      std::vector<Engine::Returned>& returned);
  void disconnect(Outcome outcome);
  void take_back(const std::vector<Engine::Returned>& returned);
  void clean_up();

  // Constant after construction.
  Engine& engine_;
  const std::string address_;
  const bool owner_returns_;
  const std::uint32_t generation_ = ForkLock::generation();

  // Of the IO thread, or with their own synchronisation.
  Poller poller_;
  PendingQueries pending_queries_{poller_.waiter()};
  const std::shared_ptr<CancelledRequests> cancelled_requests_ = std::make_shared<CancelledRequests>(poller_.waiter());
  Engine::IdleWorker idle_{poller_.waiter()};
  std::unique_ptr<Peer> server_;  // none: not connected
  Duration back_off_ = kFirstBackOff;
  TimePoint connect_at_ = TimePoint::min();
  std::unordered_map<std::uint64_t, LocalCall*> forwarded_;  // the engine's hold keeps each
  std::uint64_t last_id_ = 0;
  bool promised_ = false;  // requests, by the engine
  bool heard_hello_ = false;
  std::uint64_t unread_ = 0;  // bytes of a message for which there was no memory
  bool closing_ = false;      // it takes nothing more, but may still answer

  std::atomic<bool> stopping_{false};

  mutable Mutex absence_mutex_;
  std::string absence_ GUARDED_BY(absence_mutex_);

  Mutex life_;
  bool stopped_ GUARDED_BY(life_) = false;
  std::thread thread_ GUARDED_BY(life_);
};

}  // namespace service_streamer::ipc
