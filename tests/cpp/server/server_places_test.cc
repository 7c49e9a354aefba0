// Workers of a Server that work on several batches at a time, each with one item.

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "support/server.h"

namespace service_streamer::support {
namespace {

using ReceiveStatus = ipc::WorkerLink::ReceiveStatus;

constexpr EngineOptions kOneItem{.batch_size = 1, .policy = PolicyKind::kGreedy, .workers = 2};
constexpr Duration kShort = std::chrono::milliseconds(1);

// A worker process that the test plays.
class PlayedWorker {
 public:
  explicit PlayedWorker(Owner& owner) {
    auto [ours, its] = ipc::socket_pair();
    link_ = std::make_unique<ipc::WorkerLink>(std::move(its));
    const std::uint32_t id = owner.server->add_worker(std::move(ours), 0, "setup");
    ipc::Bytes setup;
    EXPECT_EQ(link_->receive_setup(setup), ReceiveStatus::kReceived);
    link_->send_ready("{}");
    EXPECT_TRUE(owner.next_is(Server::Event::Kind::kReady, id));
  }

  // Waits for a batch and returns its item; 0: none came.
  int next(Duration patience = kPatience) {
    std::uint64_t id = 0;
    ipc::BatchMessage batch;
    if (link_->next_batch(id, batch, Clock::now() + patience) != ReceiveStatus::kReceived) return 0;
    const int item = numbers_of(batch.payload.bytes).at(0);
    ids_[item] = id;
    return item;
  }
  void answer(int item) {
    ipc::ReplyMessage reply;
    reply.results.push_back(outputs_of({item}));
    EXPECT_TRUE(link_->reply(ids_.at(item), reply));
  }
  bool cancelled(int item) {
    next(Duration::zero());
    return link_->cancelled(ids_.at(item));
  }
  bool has_places(std::size_t count) {
    return eventually([&] {
      next(Duration::zero());
      return link_->places() == count;
    });
  }
  void pause(std::size_t count) { EXPECT_TRUE(link_->send_paused(count)); }
  void die() { link_.reset(); }

 private:
  std::unique_ptr<ipc::WorkerLink> link_;
  std::map<int, std::uint64_t> ids_;
};

TEST(ServerPlaces, AWorkerHasSeveralBatchesAndAnswersThemInAnyOrder) {
  Owner owner(kOneItem, {.address = {}, .places = 2});
  PlayedWorker worker(owner);
  const RemoteRequest request = sent(owner.engine, {1, 2, 3});
  EXPECT_EQ(worker.next(), 1);
  EXPECT_EQ(worker.next(), 2);
  EXPECT_EQ(worker.next(kShort), 0) << "it has no place for another one";
  worker.answer(2);
  EXPECT_EQ(worker.next(), 3);
  worker.answer(3);
  EXPECT_FALSE(request.done());
  worker.answer(1);
  EXPECT_TRUE(request.answered());
  EXPECT_EQ(owner.engine.stats().running_batches, 0);
}

TEST(ServerPlaces, AWorkerIsToldWhichBatchesAreNotWanted) {
  Owner owner(kOneItem, {.address = {}, .places = 2});
  PlayedWorker worker(owner);
  const RemoteRequest cancelled = sent(owner.engine, {1});
  const RemoteRequest other = sent(owner.engine, {2});
  EXPECT_EQ(worker.next(), 1);
  EXPECT_EQ(worker.next(), 2);
  EXPECT_TRUE(cancelled.cancel(owner.engine, true));
  EXPECT_TRUE(eventually([&] { return worker.cancelled(1); }));
  EXPECT_FALSE(worker.cancelled(2));
  worker.answer(1);
  worker.answer(2);
  EXPECT_TRUE(other.answered());
  EXPECT_EQ(owner.engine.stats().running_batches, 0);
}

TEST(ServerPlaces, AllBatchesOfADeadWorkerRunAgain) {
  Owner owner(kOneItem, {.retries = 1, .address = {}, .places = 2});
  PlayedWorker first(owner);
  const RemoteRequest request = sent(owner.engine, {1, 2});
  EXPECT_EQ(first.next(), 1);
  EXPECT_EQ(first.next(), 2);
  first.die();
  ASSERT_TRUE(owner.next_event().has_value());
  PlayedWorker second(owner);
  EXPECT_EQ(second.next(), 1);
  EXPECT_EQ(second.next(), 2);
  second.answer(1);
  second.answer(2);
  EXPECT_TRUE(request.answered());
}

// A request with one item for each weight, which is the weight's number, from 1 on.
RemoteRequest weighing(Engine& engine, std::vector<double> weights) {
  std::vector<int> items(weights.size());
  std::iota(items.begin(), items.end(), 1);
  RemoteRequest request(std::move(items));
  request.request().traits = std::make_shared<ItemTraits>(ItemTraits{.keys = {}, .weights = std::move(weights)});
  EXPECT_TRUE(request.submit(engine));
  return request;
}

EngineOptions with_limit(double max_weight) {
  EngineOptions options = kOneItem;
  options.max_weight = max_weight;
  return options;
}

TEST(ServerPlaces, WhatAWorkerHasWeighsAtMostTheLimit) {
  Owner owner(with_limit(10), {.address = {}, .places = 8});
  PlayedWorker worker(owner);
  const RemoteRequest request = weighing(owner.engine, {6, 3, 2, 30, 1});
  EXPECT_EQ(worker.next(), 1);
  EXPECT_EQ(worker.next(), 2);
  EXPECT_EQ(worker.next(kShort), 0) << "6 + 3 + 2 are more than 10";
  worker.answer(1);
  EXPECT_EQ(worker.next(), 3);
  EXPECT_EQ(worker.next(kShort), 0) << "it is heavier than the limit, and not alone";
  worker.answer(2);
  worker.answer(3);
  EXPECT_EQ(worker.next(), 4);
  EXPECT_EQ(worker.next(kShort), 0);
  worker.answer(4);
  EXPECT_EQ(worker.next(), 5);
  worker.answer(5);
  EXPECT_TRUE(request.answered());
}

TEST(ServerPlaces, AnItemGoesToAWorkerThatHasRoomForIt) {
  Owner owner(with_limit(10), {.address = {}, .places = 8});
  PlayedWorker first(owner);
  const RemoteRequest heavy = weighing(owner.engine, {9});
  EXPECT_EQ(first.next(), 1);
  PlayedWorker second(owner);
  const RemoteRequest other = weighing(owner.engine, {5});
  EXPECT_EQ(second.next(), 1);
  EXPECT_EQ(first.next(kShort), 0);
  first.answer(1);
  second.answer(1);
  EXPECT_TRUE(heavy.answered() && other.answered());
}

TEST(ServerPlaces, BatchesOfADeadWorkerWaitForRoomAtAnother) {
  Owner owner(with_limit(10), {.retries = 1, .address = {}, .places = 8});
  PlayedWorker first(owner);
  const RemoteRequest request = weighing(owner.engine, {6, 4});
  EXPECT_EQ(first.next(), 1);
  EXPECT_EQ(first.next(), 2);
  PlayedWorker second(owner);
  const RemoteRequest other = weighing(owner.engine, {1, 5});
  EXPECT_EQ(second.next(), 1);
  EXPECT_EQ(second.next(), 2);
  first.die();
  ASSERT_TRUE(owner.next_event().has_value());
  EXPECT_EQ(second.next(kShort), 0);
  for (const int item : {1, 2}) second.answer(item);
  EXPECT_TRUE(other.answered());
  EXPECT_EQ(second.next(), 1);
  EXPECT_EQ(second.next(), 2);
  second.answer(1);
  second.answer(2);
  EXPECT_TRUE(request.answered());
}

TEST(ServerPlaces, AWorkerGetsMoreForPausedBatchesUpToTwiceItsPlaces) {
  Owner owner(kOneItem, {.address = {}, .places = 2});
  PlayedWorker worker(owner);
  const RemoteRequest request = sent(owner.engine, {1, 2, 3, 4, 5});
  EXPECT_EQ(worker.next(), 1);
  EXPECT_EQ(worker.next(), 2);
  worker.pause(1);
  EXPECT_EQ(worker.next(), 3);
  EXPECT_EQ(worker.next(kShort), 0);
  worker.pause(1000);
  EXPECT_EQ(worker.next(), 4);
  EXPECT_EQ(worker.next(kShort), 0);
  worker.pause(0);
  worker.answer(1);
  worker.answer(2);
  EXPECT_EQ(worker.next(kShort), 0) << "two are left";
  worker.answer(3);
  EXPECT_EQ(worker.next(), 5);
  worker.answer(4);
  worker.answer(5);
  EXPECT_TRUE(request.answered());
}

TEST(ServerPlaces, TheNumberOfPlacesCanChange) {
  Owner owner(kOneItem, {.address = {}, .places = 1});
  PlayedWorker worker(owner);
  EXPECT_TRUE(worker.has_places(1));
  const RemoteRequest request = sent(owner.engine, {1, 2, 3, 4});
  EXPECT_EQ(worker.next(), 1);
  owner.server->configure({.batch_size = 3, .policy = PolicyKind::kWindow});
  EXPECT_EQ(worker.next(), 2);
  EXPECT_EQ(worker.next(), 3);
  EXPECT_TRUE(worker.has_places(3));
  EXPECT_EQ(owner.engine.options().batch_size, 1U) << "of the engine's batches";
  EXPECT_EQ(owner.engine.options().policy, PolicyKind::kGreedy);
  EXPECT_EQ(owner.engine.options().workers, 6);
  owner.server->set_workers(1);
  EXPECT_EQ(owner.engine.options().workers, 3);
  owner.server->configure({.batch_size = 2});
  EXPECT_TRUE(worker.has_places(2));
  worker.answer(1);
  EXPECT_EQ(worker.next(kShort), 0) << "it has two batches";
  worker.answer(2);
  EXPECT_EQ(worker.next(), 4);
  worker.answer(3);
  worker.answer(4);
  EXPECT_TRUE(request.answered());
  EXPECT_THROW(owner.server->configure({.batch_size = 0}), std::invalid_argument);
}

TEST(ServerPlaces, AWorkerThatHasLostItsFreePlaceDoesNotHoldRequestsUp) {
  Owner owner(kOneItem, {.address = {}, .places = 2});
  PlayedWorker full(owner);
  const RemoteRequest first = sent(owner.engine, {1});
  EXPECT_EQ(full.next(), 1);
  ASSERT_TRUE(idle_workers_are(owner.engine, 1));
  owner.server->configure({.batch_size = 1});
  ASSERT_TRUE(idle_workers_are(owner.engine, 0));
  PlayedWorker other(owner);
  const RemoteRequest second = sent(owner.engine, {2});
  EXPECT_EQ(other.next(), 2);
  other.answer(2);
  EXPECT_TRUE(second.answered());
  full.answer(1);
  EXPECT_TRUE(first.answered());
}

}  // namespace
}  // namespace service_streamer::support
