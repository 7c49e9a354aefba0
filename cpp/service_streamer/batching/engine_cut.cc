#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

#include "service_streamer/batching/engine.h"

// How a reserved batch is cut: which requests are in it.

namespace service_streamer {
namespace {

// Reserves memory for one more range. False if there is none.
bool make_room(std::vector<RequestRange>& ranges) {
  if (ranges.size() < ranges.capacity()) return true;
  try {
    ranges.reserve(std::max<std::size_t>(2 * ranges.size(), 64));
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

// The next request of a batch, after there is none with `key`: of the buckets that join, which changes the key. nullptr
// if there is none.
Request* next_joining(const RequestQueue& queue, std::uint64_t& key, const BucketPolicy::Plan& plan) {
  Request* next = nullptr;
  for (std::uint64_t joining : {plan.joining, plan.partly}) {
    for (; next == nullptr && joining != 0; joining &= joining - 1) {
      key = (key & ~kBucketBits) | static_cast<std::uint64_t>(std::countr_zero(joining));
      next = queue.next_alike(key);
    }
  }
  return next;
}

}  // namespace

bool Engine::cut(Batch& batch, CloseReason reason, EndedRequests& ended, const ItemWeights& live) {
  batch = {};
  try {
    batch.ranges.reserve(64);
  } catch (const std::bad_alloc&) {
    decline();  // otherwise the reservation would stay for ever
    throw;
  }
  Wakes wakes;
  {
    MutexLock lock(mutex_);
    const TimePoint now = Clock::now();
    // Workers with a reservation count as idle: they are about to cut their batches, too.
    const std::size_t idle_workers = idle_.size() + static_cast<std::size_t>(reserved_);
    end_hopeless(now, ended, wakes);
    Request* first = first_live(reason, now, ended, wakes);
    if (first != nullptr && !has_room(live, *first)) first = nullptr;
    BatchLimits limits = options_.queue_options().limits;
    if (first != nullptr) limits.items = share_of(*first, idle_workers);
    const bool full = fill(batch, {.first = first, .limits = limits}, now, ended, wakes);
    if (batch.items > 0) {
      batch.dispatched = now;
      batch.rerun = batch.ranges.front().request->alone;
      batch.reason = reason;
      if (full || batch.items == options_.batch_size) {
        batch.reason = CloseReason::kFull;
      } else if (batch.items >= batch_limit_) {
        batch.reason = CloseReason::kSlo;
      }
      const bool from_policy = reason != CloseReason::kDrain && reason != CloseReason::kPriority;
      if (!full && from_policy && limits.items < batch_limit_ && alike_left(batch)) {
        batch.reason = CloseReason::kShare;
      }
      for (const RequestRange& range : batch.ranges) {
        range.request->batch_items = static_cast<std::uint32_t>(batch.items);
        range.request->reason = batch.reason;
      }
      batch.id = ++last_batch_;
      ++running_batches_;
      running_items_ += batch.items;
      if (recording()) [[unlikely]]
        log_cut(batch, now);
    }
    if (batch.items > 0 && !batch.rerun) {
      policy_.dispatched(now, batch.finishing);
      if (slo_) slo_->dispatched(now, batch.items);
      ++counters_.batches;
      counters_.items += batch.items;
      ++counters_.batch_sizes[batch.items];
      ++counters_.close_reasons[static_cast<std::size_t>(batch.reason)];
      const bool others = queue_.grouped() && queue_.requests() > 0 && !alike_left(batch);
      if (others && batch.reason != CloseReason::kFull) ++counters_.other_keys;
    }
    settle(now, wakes);
  }
  wakes.run();
  return batch.items > 0;
}

void Engine::decline() {
  Wakes wakes;
  {
    MutexLock lock(mutex_);
    --reserved_;
    wakes.worker = worker_to_wake(Clock::now());
  }
  wakes.run();
}

// --- under the mutex ---

// True if no other group goes before the request any more, even if the policy would still wait for others.
bool Engine::overdue(const Request& request, TimePoint now) const {
  return now - request.arrived >= options_.max_latency;
}

// The request that a batch which cannot grow begins with; nullptr: there is none.
Request* Engine::first_of_full_batch(TimePoint now) {
  Request& front = queue_.front();
  return plan_for(front, queue_.limits()).company.full ? &front : first_ahead_of(front, now);
}

// The same if the group of the front is not enough for a batch. Another group must not delay the front for long, nor go
// before one of a higher priority.
Request* Engine::first_ahead_of(const Request& front, TimePoint now) {
  if (!queue_.grouped() || overdue(front, now)) return nullptr;
  Request* first = queue_.first_of_full_group();
  return first != nullptr && first->priority >= front.priority ? first : nullptr;
}

// The request that a reserved batch begins with; nullptr: nothing is queued. Ends expired ones on the way.
Request* Engine::first_live(CloseReason reason, TimePoint now, EndedRequests& ended, Wakes& wakes) {
  while (queue_.requests() > 0 || queue_.alone_requests() > 0) {
    Request* first = reason == CloseReason::kFull ? first_of_full_batch(now) : nullptr;
    if (first == nullptr) first = &queue_.front();
    if (first->deadline > now) return first;
    end(*first, Outcome::kExpired, now, ended, wakes);
  }
  return nullptr;
}

// The most items of a batch that begins with this request. Of the idle workers, others take the other groups.
std::size_t Engine::share_of(const Request& first, std::size_t idle_workers) {
  const std::size_t others = std::max(queue_.groups(), 1) - 1;
  return policy_.share(policy_queue(queue_.company_of(first), idle_workers > others ? idle_workers - others : 1));
}

// The batch that begins with this request. Its later items count, too, although they are not in a group yet.
BucketPolicy::Plan Engine::plan_for(const Request& first, const BatchLimits& limits) {
  const RequestQueue::Company company = queue_.company_of(first);
  const std::uint64_t key = first.key(first.dispatched);
  const std::size_t number = key & kBucketBits;
  if (number >= options_.buckets || !queue_.grouped() || first.alone || company.full) return {.company = company};
  std::array<RequestQueue::Company, kMaxBuckets> buckets;
  for (std::size_t i = 0; i < options_.buckets; ++i) buckets[i] = queue_.company_of((key & ~kBucketBits) | i);
  if (first.run_end < first.size) --buckets[number].requests;
  const std::size_t seen = std::min<std::size_t>(first.size, first.run_end + limits.items);
  for (std::uint32_t i = first.run_end; i < first.size && (first.key(i) & ~kBucketBits) == (key & ~kBucketBits); ++i) {
    RequestQueue::Company& later = buckets[first.key(i) & kBucketBits];
    later.full = later.full || i >= seen;
    if (i >= seen) break;
    ++later.items;
    later.sum += first.weight(i);
    later.heaviest = std::max(later.heaviest, first.weight(i));
  }
  return buckets_.plan({buckets.data(), options_.buckets}, number, limits);
}

// True if a request is queued that could be in the batch.
bool Engine::alike_left(const Batch& batch) const {
  const RequestRange& range = batch.ranges.front();
  return queue_.next_alike(range.request->key(range.begin)) != nullptr;
}

// Takes a reserved batch from the queue, or less if memory runs out. A request that runs alone is the only one. Returns
// true if the next item of the same key was too heavy.
bool Engine::fill(Batch& batch, const Fill& how, TimePoint now, EndedRequests& ended, Wakes& wakes) {
  before_event(now);
  --reserved_;
  BatchLoad load(how.limits);
  std::uint64_t key = how.first != nullptr ? how.first->key(how.first->dispatched) : 0;
  const bool plans = options_.buckets > 0 && how.first != nullptr;
  const BucketPolicy::Plan plan = plans ? plan_for(*how.first, how.limits) : BucketPolicy::Plan{};
  bool too_heavy = false;
  Request* next = how.first;
  while (next != nullptr && batch.items < how.limits.items && make_room(batch.ranges)) {
    if (next->priority < least_due_priority_) break;
    const bool alone = next->alone;
    if (next->deadline <= now) {
      end(*next, Outcome::kExpired, now, ended, wakes);
    } else {
      const std::uint32_t count = how.whole || alone ? next->size : load.room_for(*next);
      too_heavy = count == 0;
      if (too_heavy) break;
      if (next->dispatched == 0 && !alone) {
        times_.queue_time.add(now - next->arrived);
        next->taken = now;
      }
      batch.age = std::max(batch.age, now - next->arrived);
      const RequestRange range = queue_.take(*next, count);
      load.add(range);
      batch.items += count;
      if (!batch.ranges.empty() && follows(batch.ranges.back(), range)) {
        batch.ranges.back().count += count;
      } else {
        batch.ranges.push_back(range);
        next->holds.fetch_add(1, std::memory_order_relaxed);
      }
      if (next->phase == Request::Phase::kDispatched) ++batch.finishing;
    }
    if (alone) break;
    next = queue_.next_alike(key);
    if (next == nullptr) next = next_joining(queue_, key, plan);
  }
  if (batch.items > 0 && !batch.ranges.front().request->alone) {
    counters_.weight += load.sum();
    counters_.padded_weight += options_.buckets > 0 ? load.padded() : load.weight();
    batch.padded = load.padded();
  }
  // If items stay and another worker is idle, ready_ stays too: these items have been waiting since then.
  if (queue_.requests() == 0 || idle_.empty()) ready_ = TimePoint::max();
  return too_heavy;
}

}  // namespace service_streamer
