#include "service_streamer/batching/slo_policy.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace service_streamer {
namespace {

constexpr double kMarginStep = 1.0 / 32;    // for a late batch, over the target
constexpr double kOnTime = 99;              // the number of nearly late batches that undo one step
constexpr double kNearlyLate = 3.0 / 4;     // over the target
constexpr double kLargestMargin = 3.0 / 4;  // over what the target leaves beside a batch of one item
constexpr double kStraggler = 3.0 / 2;      // the time of a batch that nothing could foresee, over the expected time
constexpr double kRateSpan = 4;             // targets over which arrivals are counted
constexpr int kProbePause = 8;              // targets without a batch before a probe
constexpr int kShortestPause = 16;          // batches between trials
constexpr int kLongestPause = 1024;
constexpr Duration kPastTheTarget = std::chrono::microseconds(1);
constexpr double kLongestTarget = 1e8;  // seconds; larger times could overflow

Duration duration(double value) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(std::min(value, kLongestTarget)));
}

}  // namespace

SloPolicy::SloPolicy(const Options& options) : trial_pause_(kShortestPause) {
  configure(options);
}

void SloPolicy::configure(const Options& options) {
  options_ = options;
  options_.slo = std::min(options.slo, duration(kLongestTarget));
  if (slo_ > 0) margin_ *= seconds(options_.slo) / slo_;
  slo_ = seconds(options_.slo);
  running_.reserve(2 * static_cast<std::size_t>(options.workers));
  update_batch_limit();
}

Duration SloPolicy::refuse(TimePoint now, Duration waited, std::size_t ahead, std::size_t size) {
  note_arrival(now, size);
  const Duration late = lateness(now, waited, ahead, size);
  if (late == Duration::zero()) return late;
  const bool idle = ahead == 0 && running_.empty() && now >= last_active_ + kProbePause * options_.slo;
  if (idle && lateness(now, Duration::zero(), 0, size) > Duration::zero()) {
    last_active_ = now;
    probing_ = true;
    return Duration::zero();
  }
  refused_ = true;
  return late;
}

Duration SloPolicy::lateness(TimePoint now, Duration waited, std::size_t ahead, std::size_t size) const {
  return duration(std::max(0.0, seconds(waited) + finish(now, ahead, size) + margin_ - slo_));
}

void SloPolicy::dispatched(TimePoint now, std::size_t items) {
  probing_ = false;
  if (running_.size() == running_.capacity()) return;  // more than two batches for each worker: a rare case
  const Running running{now, now + duration(cost_.expected(static_cast<double>(items)))};
  running_.insert(std::ranges::upper_bound(running_, running.end, {}, &Running::end), running);
}

void SloPolicy::completed(TimePoint now, TimePoint dispatched, std::size_t items, Duration age) {
  // If more batches than workers are in flight, this one has waited for the batch before it.
  const bool waited = running_.size() > static_cast<std::size_t>(options_.workers);
  const double service = seconds(now - (waited ? std::max(dispatched, last_completed_) : dispatched));
  const auto found = std::ranges::find(running_, dispatched, &Running::start);
  if (found != running_.end()) running_.erase(found);
  last_completed_ = last_active_ = now;
  if (items == 0) return;

  const auto size = static_cast<double>(items);
  const double latency = seconds(age + (now - dispatched));
  const double before = cost_.expected(size);
  cost_.learn(size, std::max(0.0, service));
  learn_margin(latency, before <= slo_ && service < kStraggler * before);
  --until_trial_;
  if (items > fit_) end_trial(latency <= slo_);
  update_batch_limit();
}

bool SloPolicy::hopeless(TimePoint now, TimePoint begun, std::size_t left, std::size_t queued) const {
  const std::size_t items = std::min(std::max(left, queued), batch_limit_);
  return !probing_ && seconds(now - begun) + free_after(now, 0) + cost_of(items) > slo_;
}

TimePoint SloPolicy::hopeless_at(TimePoint begun, std::size_t left, std::size_t queued) const {
  if (probing_) return TimePoint::max();
  const std::size_t items = std::min(std::max(left, queued), batch_limit_);
  return begun + duration(slo_ - cost_of(items)) + kPastTheTarget;
}

TimePoint SloPolicy::latest_start(TimePoint begun, std::size_t items) const {
  return begun + duration(slo_ - margin_ - cost_of(std::min(items, batch_limit_)));
}

Duration SloPolicy::least_service() const {
  return duration(cost_.expected(1));
}

void SloPolicy::note_arrival(TimePoint now, std::size_t size) {
  const double span = kRateSpan * slo_;
  if (last_arrived_ != TimePoint::min()) rate_ *= std::exp(-std::max(0.0, seconds(now - last_arrived_)) / span);
  rate_ += static_cast<double>(size) / span;
  last_arrived_ = now;
}

// The time until the batch with the last item of the request ends. The batches before it are full. If it has to wait,
// others will join it, so it is full, too.
double SloPolicy::finish(TimePoint now, std::size_t ahead, std::size_t size) const {
  const auto workers = static_cast<std::size_t>(options_.workers);
  const std::size_t last = ahead + size - 1;
  const std::size_t batch = last / batch_limit_;
  const std::size_t rounds = batch / workers;
  const double start = free_after(now, batch % workers) + static_cast<double>(rounds) * cost_of(batch_limit_);
  return start + cost_of(start > 0 ? batch_limit_ : last % batch_limit_ + 1);
}

// The time until the `worker`-th of the workers that take a batch from now on takes it. A batch that is overdue will
// probably take as long again.
double SloPolicy::free_after(TimePoint now, std::size_t worker) const {
  const auto workers = static_cast<std::size_t>(options_.workers);
  if (worker + running_.size() < workers) return 0;
  const std::size_t rank = worker + running_.size() - workers;
  const auto first = running_.begin();
  auto next = std::ranges::lower_bound(running_, now, {}, &Running::end);
  auto overdue = next;  // the batches before it are overdue
  constexpr double kNever = std::numeric_limits<double>::infinity();
  double time = 0;
  for (std::size_t i = 0; i <= rank; ++i) {
    const double late = overdue != first ? seconds(now - (overdue - 1)->end) : kNever;
    const double early = next != running_.end() ? seconds(next->end - now) : kNever;
    time = std::min(late, early);
    late < early ? static_cast<void>(--overdue) : static_cast<void>(++next);
  }
  return time;
}

// During a trial, a batch is taken to be as fast as the largest one that is known to keep the target.
double SloPolicy::cost_of(std::size_t items) const {
  return cost_.expected(static_cast<double>(std::min(items, fit_)));
}

void SloPolicy::learn_margin(double latency, bool foreseen) {
  if (latency > slo_ && foreseen) {
    margin_ += kMarginStep * slo_;
  } else if (latency > kNearlyLate * (slo_ - margin_)) {
    margin_ -= kMarginStep * slo_ / kOnTime;
  }
  margin_ = std::clamp(margin_, 0.0, kLargestMargin * std::max(0.0, slo_ - cost_.expected(1)));
}

void SloPolicy::end_trial(bool in_time) {
  trial_pause_ = in_time ? kShortestPause : std::min(2 * trial_pause_, kLongestPause);
  until_trial_ = trial_pause_;
  refused_ = false;
}

// Two sizes keep the target. With the first, a request that just misses a batch is in time in the next one. With the
// second, all items that arrive early enough for a batch fit into it; those that arrive earlier are refused.
void SloPolicy::update_batch_limit() {
  const double target = slo_ - margin_;
  const std::size_t next = cost_.largest(target / (1 + 1.0 / options_.workers), options_.batch_size);
  const double joining = rate_ * (target - cost_.expected(0)) / (1 + rate_ * cost_.item_cost());
  const std::size_t early = cost_.largest(cost_.expected(joining), options_.batch_size);
  fit_ = std::max<std::size_t>({1, next, early});
  batch_limit_ = fit_;
  if (refused_ && until_trial_ <= 0) batch_limit_ = std::min(fit_ + fit_ / 2 + 1, options_.batch_size);
}

}  // namespace service_streamer
