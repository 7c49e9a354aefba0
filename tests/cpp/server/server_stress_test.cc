// A Server under random load: workers die, fail, are retired and replaced; clients die with requests in flight; callers
// cancel, give up and drop requests; the server ends. The load comes from fixed seeds, the timing from the scheduler.

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <numeric>
#include <vector>

#include "simulation/random.h"
#include "support/ipc.h"
#include "support/server.h"

namespace service_streamer::support {
namespace {

using ipc::ClientLink;
using simulation::Random;
using std::chrono::microseconds;
using Kind = Server::Event::Kind;

constexpr int kRounds = 40 / kStressShare;
constexpr int kWorkers = 3;
constexpr int kClients = 2;
constexpr int kCallsOfEach = 400;
constexpr int kBadItem = 13;  // the model fails on it

// The counts of a round: accepted calls, and reported ends.
struct Score {
  std::atomic<std::uint64_t> accepted{0};
  std::atomic<std::uint64_t> reply{0};
  std::atomic<std::uint64_t> answered{0};
  std::atomic<std::uint64_t> lost{0};
  std::array<std::atomic<std::uint64_t>, kOutcomes> by_outcome{};
};

// A model that sometimes dies, fails or is slow.
Model moody(std::uint64_t seed) {
  return [random = std::make_shared<Random>(seed)](const ipc::BatchMessage& batch, ipc::ReplyMessage& reply) {
    if (random->uniform() < 0.01) return false;
    add_one(batch, reply);
    const std::vector<int> items = numbers_of(batch.payload.bytes);
    std::size_t first = 0;
    for (std::size_t i = 0; i < batch.ranges.size(); ++i) {
      if (items[first] == kBadItem) reply.results[i].kind = ipc::ResultKind::kError;
      first += batch.ranges[i].items;
    }
    if (random->uniform() < 0.05) Parker().park(Clock::now() + microseconds(random->between(0, 500)));
    return random->uniform() >= 0.01;
  };
}

// Replaces workers that have ended, as the supervisor does.
class Supervisor {
 public:
  Supervisor(Owner& owner, std::uint64_t seed) : owner_(owner), random_(seed), thread_([this] { run(); }) {}
  ~Supervisor() { stop(); }
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  void stop() {
    stopping_ = true;
    owner_.server->interrupt();
    eventually([this] { return thread_.finished(); });
  }
  int deaths() const { return deaths_; }

 private:
  void run() {
    Sleeping sleeping;
    for (int i = 0; i < kWorkers; ++i) add();
    while (!stopping_) {
      const std::optional<Server::Event> event = owner_.server->next_event(sleeping.waiter(), TimePoint::max());
      if (!event) continue;
      if (event->kind == Kind::kGone) {
        ++deaths_;
        std::erase_if(owner_.workers, [](const auto& worker) { return worker->finished(); });
        add();
      } else if (random_.uniform() < 0.1) {
        owner_.server->retire_worker(event->worker);
      }
    }
  }
  void add() { owner_.add(moody(random_.next()), random_.uniform() > 0.05); }

  Owner& owner_;
  Random random_;
  std::atomic<bool> stopping_{false};
  std::atomic<int> deaths_{0};
  Thread thread_;
};

// Makes calls in all ways, on an engine that may close at any time.
class Caller {
 public:
  Caller(Engine& engine, Server* server, ClientLink* client_link, Duration patience, Score& score, std::uint64_t seed)
      : engine_(engine),
        server_(server),
        client_link_(client_link),
        patience_(patience),
        score_(score),
        random_(seed) {}

  void run() {
    const auto mailbox = std::make_shared<Mailbox>();
    std::deque<RemoteRequest> open;
    std::uint64_t accepted = 0;
    std::uint64_t reply = 0;
    for (int i = 0; i < kCallsOfEach; ++i) {
      RemoteRequest request = any_request();
      EXPECT_TRUE(request.call().observers.add(mailbox, &engine_));
      if (!enter(request)) break;
      ++accepted;
      open.push_back(std::move(request));
      while (open.size() > 8 || (!open.empty() && random_.uniform() < 0.5)) {
        finish(open.front());
        open.pop_front();
      }
      reply += mailbox->drain().size();
    }
    for (const RemoteRequest& request : open) finish(request);
    EXPECT_TRUE(eventually([&] { return (reply += mailbox->drain().size()) >= accepted; })) << reply << " " << accepted;
    score_.accepted += accepted;
    score_.reply += reply;
  }

 private:
  RemoteRequest any_request() {
    const double kind = random_.uniform();
    std::vector<int> items(static_cast<std::size_t>(kind < 0.05 ? random_.between(20, 200) : random_.between(1, 4)));
    std::iota(items.begin(), items.end(), 100);
    if (kind > 0.97) items[0] = kBadItem;
    Terms terms{.priority = random_.uniform() < 0.1 ? 1 : 0, .deadline = Clock::now() + patience_};
    if (random_.uniform() < 0.1) terms.deadline = Clock::now() + microseconds(random_.between(0, 3000));
    return RemoteRequest(std::move(items), terms);
  }

  // Sometimes the caller waits for the result at once, receives it itself if it can, and may give up.
  bool enter(const RemoteRequest& request) {
    if (server_ == nullptr || random_.uniform() < 0.5) return request.submit(engine_, server_);
    const auto shortly = microseconds(random_.between(0, 2000));
    const Duration patience = random_.uniform() < 0.2 ? shortly : kPatience;
    return request.ask(engine_, *server_, patience) != Completion::Wait::kInterrupted;
  }

  void finish(const RemoteRequest& request) {
    const double way = random_.uniform();
    if (way < 0.05) request.cancel(engine_, true);
    if (way > 0.95) request.cancel(engine_, false);
    if (client_link_ != nullptr && way > 0.9 && way < 0.95) {
      ipc::QueryReply reply;
      Sleeping sleeping;
      client_link_->cancel(request.request(), reply, sleeping.waiter(), Clock::now() + std::chrono::seconds(5));
      EXPECT_TRUE(!reply.yes || request.done());
    }
    if (way > 0.4 && way < 0.45) return;  // dropped by its caller; it ends nevertheless
    ASSERT_TRUE(request.wait()) << "a request has not ended";
    const Outcome outcome = request.request().outcome;
    ++score_.by_outcome[static_cast<std::size_t>(outcome)];
    EXPECT_TRUE(outcome != Outcome::kAnswered || request.answered());
    EXPECT_TRUE(outcome != Outcome::kFailed || request.call().ranges.size() == 1);
    EXPECT_TRUE(outcome != Outcome::kLost || !request.call().note.empty());
  }

  Engine& engine_;
  Server* const server_;
  ClientLink* const client_link_;
  const Duration patience_;  // of every request, because the server may not come back
  Score& score_;
  Random random_;
};

// A client process that ends and starts again several times.
void live_as_client(const std::string& address, Duration patience, Score& score, std::uint64_t seed) {
  Random random(seed);
  for (int life = 0; life < 3; ++life) {
    Engine engine({.policy = PolicyKind::kGreedy, .max_queue = 64});
    ClientLink client_link(engine, address);
    client_link.start();
    {
      std::deque<Thread> callers;
      for (int i = 0; i < 2; ++i) {
        callers.emplace_back([&engine, &client_link, patience, &score, caller_seed = random.next()] {
          Caller(engine, nullptr, &client_link, patience, score, caller_seed).run();
        });
      }
      if (random.uniform() < 0.5) {
        Parker().park(Clock::now() + microseconds(random.between(0, 20'000)));
        client_link.stop();  // the client dies; abort ends the remaining requests
        close_remote(engine, false);
        while (!std::all_of(callers.begin(), callers.end(), [](const Thread& caller) { return caller.finished(); })) {
          abort_remote(engine);
          std::this_thread::yield();
        }
      }
    }
    client_link.stop();
    abort_remote(engine);
  }
}

TEST(ServerStress, EveryRequestEndsOnceWhateverDies) {
  const std::size_t descriptors = ipc::support::open_descriptors();
  Score score;
  int deaths = 0;
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    SCOPED_TRACE(round);
    Owner owner({.batch_size = 16,
                 .max_latency = microseconds(200),
                 .policy = static_cast<PolicyKind>(round % 3),
                 .workers = kWorkers,
                 .max_queue = 128},
                {.retries = 1, .address = {}});
    Supervisor supervisor(owner, round * 1000);
    const bool goes_early = round % 4 == 3;
    const Duration patience = goes_early ? std::chrono::milliseconds(1) : kPatience;
    const std::string address = owner.server->address();
    {
      std::deque<Thread> threads;
      for (std::uint64_t i = 0; i < 2; ++i) {
        threads.emplace_back(
            [&, i] { Caller(owner.engine, &*owner.server, nullptr, patience, score, round * 1000 + 1 + i).run(); });
      }
      for (std::uint64_t i = 0; i < kClients; ++i) {
        threads.emplace_back([&, i] { live_as_client(address, patience, score, round * 1000 + 10 + i); });
      }
      if (goes_early) {
        Parker().park(Clock::now() + microseconds(5000));
        close_remote(owner.engine, false);
        supervisor.stop();
        owner.server->stop();
        while (!threads[0].finished() || !threads[1].finished()) {
          abort_remote(owner.engine);
          std::this_thread::yield();
        }
      }
    }
    supervisor.stop();
    deaths += supervisor.deaths();
    if (!goes_early) {
      EXPECT_TRUE(eventually([&] {
        const EngineStats stats = owner.engine.stats();
        return stats.queued_requests == 0 && stats.waiting_requests == 0;
      }));
    }
    owner.server->stop();
    abort_remote(owner.engine);
    const EngineStats stats = owner.engine.stats();
    EXPECT_EQ(stats.running_batches, 0);
    EXPECT_EQ(stats.running_items, 0U);
    EXPECT_EQ(stats.idle_workers, 0);
    const Counters& counters = stats.counters;
    EXPECT_EQ(counters.submitted, counters.completed + counters.failed + counters.cancelled + counters.expired +
                                      counters.rejected + counters.dropped);
  }
  EXPECT_EQ(score.reply, score.accepted);
  EXPECT_GT(deaths, kRounds);
  for (const Outcome outcome : {Outcome::kAnswered, Outcome::kFailed, Outcome::kExpired, Outcome::kCancelled}) {
    EXPECT_GT(score.by_outcome[static_cast<std::size_t>(outcome)], 0U);
  }
  for (std::size_t i = 0; i < kOutcomes; ++i)
    RecordProperty("outcome" + std::to_string(i), std::to_string(score.by_outcome[i]));
  EXPECT_LE(ipc::support::open_descriptors(), descriptors + 16) << "but for eventfds, which are kept";
}

}  // namespace
}  // namespace service_streamer::support
