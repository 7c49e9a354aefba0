#include "service_streamer/batching/batch_policy.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace service_streamer {
namespace {

constexpr double kWeight = 1.0 / 8;        // of a new batch in the means
constexpr double kDecay = 1 - kWeight;     // of the sums, per batch
constexpr double kFlatVariance = 1.0 / 4;  // below this variance of the sizes there is no slope
constexpr double kWatchShare = 1.0 / 4;    // watch_ over fixed_cost_: a useless linger is cheap
constexpr double kBurstOverMean = 2;       // the end of a uniform burst over its mean
constexpr double kGain = 2;  // 1 would be the break-even of independent arrivals, which must not be waited for
constexpr double kRounding = 1.0 / 2;   // fewer than half a caller count as none
constexpr int kSpacingTicks = 4;        // batches that take fewer ticks are not spaced
constexpr double kOverhead = 1.0 / 20;  // the highest fixed cost of a share over the cost of its items
constexpr double kSpread = 1.0 / 4;     // the slope needs sizes that deviate by more than this share of their mean

// Options may be as large as the type allows, so arithmetic saturates.
Duration saturate(double value) {
  const double nanoseconds = value * 1e9 + 0.5;  // rounds to the nearest
  if (!(nanoseconds > 0)) return Duration::zero();
  if (nanoseconds >= static_cast<double>(Duration::max().count())) return Duration::max();
  return Duration(static_cast<Duration::rep>(nanoseconds));
}

TimePoint later(TimePoint start, Duration by) {
  Duration::rep sum = 0;
  if (__builtin_add_overflow(start.time_since_epoch().count(), by.count(), &sum)) {
    return TimePoint::max();
  }
  return TimePoint(Duration(sum));
}

}  // namespace

const char* to_string(PolicyKind kind) {
  switch (kind) {
    case PolicyKind::kAdaptive:
      return "adaptive";
    case PolicyKind::kGreedy:
      return "greedy";
    case PolicyKind::kWindow:
      return "window";
  }
  return "unknown";
}

const char* to_string(CloseReason reason) {
  switch (reason) {
    case CloseReason::kFull:
      return "full";
    case CloseReason::kIdle:
      return "idle";
    case CloseReason::kReturned:
      return "returned";
    case CloseReason::kLinger:
      return "linger";
    case CloseReason::kMaxLatency:
      return "max_latency";
    case CloseReason::kWindow:
      return "window";
    case CloseReason::kShare:
      return "share";
    case CloseReason::kPriority:
      return "priority";
    case CloseReason::kMemory:
      return "memory";
    case CloseReason::kSlo:
      return "slo";
    case CloseReason::kDrain:
      return "drain";
  }
  return "unknown";
}

BatchPolicy::BatchPolicy(const Options& options) {
  configure(options);
}

void BatchPolicy::configure(const Options& options) {
  assert(options.batch_size >= 1);
  assert(options.max_latency >= Duration::zero());
  assert(options.workers >= 1);
  options_ = options;
  update_watch();
}

void BatchPolicy::arrived(TimePoint now) {
  if (!counts_as_return(now)) return;
  return_sum_ += 1;
  return_delays_ += seconds(now - last_completed_);
  returns_due_ = std::max(0.0, returns_due_ - 1);
}

void BatchPolicy::dispatched(TimePoint now, int finishing) {
  last_dispatched_ = now;
  in_flight_ += finishing;
}

void BatchPolicy::completed(TimePoint now, std::size_t items, Duration service, int finishing, double weight) {
  in_flight_ = std::max(0, in_flight_ - finishing);
  if (items > 0) learn_cost(static_cast<double>(items), weight, std::max(0.0, seconds(service)));

  const double return_share = answered_sum_ > 0 ? std::min(1.0, return_sum_ / answered_sum_) : 0;
  // Returns after the batch of another worker are still expected until its watch ends.
  returns_due_ = (counts_as_return(now) ? returns_due_ : 0) + return_share * finishing;
  returns_expected_ = returns_due_;
  // Cannot overflow: a delay is at most watch_, a quarter of a service time.
  burst_ = return_sum_ > 0 ? saturate(kBurstOverMean * return_delays_ / return_sum_) : Duration::zero();
  answered_sum_ = kDecay * answered_sum_ + finishing;
  return_sum_ *= kDecay;
  return_delays_ *= kDecay;

  any_completed_ = true;
  last_completed_ = now;
  update_watch();
}

BatchPolicy::Verdict BatchPolicy::due(const Queue& queue, TimePoint now) const {
  assert(queue.items > 0 && queue.requests > 0 && queue.idle_workers > 0);
  if (queue.items >= options_.batch_size) return {now, CloseReason::kFull};
  if (options_.kind == PolicyKind::kGreedy || options_.max_latency == Duration::zero()) {
    return {now, CloseReason::kIdle};
  }
  if (options_.kind == PolicyKind::kWindow) {
    return {later(queue.oldest, options_.max_latency), CloseReason::kWindow};
  }

  const TimePoint bound = later(queue.ready, options_.max_latency);
  const TimePoint spaced = later(last_dispatched_, spacing(queue));
  if (now < spaced) {
    return bound < spaced ? Verdict{bound, CloseReason::kMaxLatency} : Verdict{spaced, CloseReason::kIdle};
  }

  // Do not linger if no batch has completed, or if the model is too fast for a linger to pay.
  if (!any_completed_ || watch_ < kTick) return {now, CloseReason::kIdle};
  const TimePoint linger = linger_end();
  const bool expected = returns_expected_ > kRounding;
  if (now >= linger) {
    if (!expected || queue.ready >= linger) return {now, CloseReason::kIdle};
    return {now, returns_due_ > kRounding ? CloseReason::kLinger : CloseReason::kReturned};
  }

  // Do not linger if the other idle workers can take all expected returns, each as many as are queued now.
  const double waiting = queue.requests;
  if (returns_due_ <= (queue.idle_workers - 1) * waiting + kRounding) {
    return {now, expected ? CloseReason::kReturned : CloseReason::kIdle};
  }

  // The queued requests lose the rest of the linger. The expected ones save a batch of their own.
  const TimePoint end = std::min(linger, bound);
  const double saved = std::min(fixed_cost_, mean_service_ / options_.workers);
  if (kGain * waiting * seconds(end - now) >= returns_due_ * saved) return {now, CloseReason::kIdle};
  return {end, end == bound ? CloseReason::kMaxLatency : CloseReason::kLinger};
}

std::size_t BatchPolicy::share(const Queue& queue) const {
  const std::size_t all = options_.batch_size;
  if (options_.kind != PolicyKind::kAdaptive || queue.items >= all || item_cost_ <= 0) return all;
  if (queue.requests == 1 && options_.workers == 1) return all;  // a split request is not answered before its last part
  const double fixed = std::max(fixed_cost_, seconds(kTick));
  const double least = std::ceil(fixed / (kOverhead * item_cost_));
  const double fair = std::ceil(static_cast<double>(queue.items) / std::max(2, queue.idle_workers));
  return static_cast<std::size_t>(std::clamp(std::max(least, fair), 1.0, static_cast<double>(all)));
}

TimePoint BatchPolicy::watch_end() const {
  const bool expecting =
      options_.kind == PolicyKind::kAdaptive && any_completed_ && watch_ >= kTick && returns_due_ > 1 + kRounding;
  return expecting ? linger_end() : TimePoint::min();
}

Duration BatchPolicy::mean_service() const {
  return saturate(mean_service_);
}

void BatchPolicy::learn_cost(double items, double weight, double service) {
  if (!any_completed_) {
    mean_service_ = service;
    mean_size_ = items;
    mean_weight_ = weight;
  }
  const double weight_error = weight - mean_weight_;
  const double service_error = service - mean_service_;
  mean_size_ += kWeight * (items - mean_size_);
  mean_weight_ += kWeight * weight_error;
  mean_service_ += kWeight * service_error;
  weight_variance_ = kDecay * (weight_variance_ + kWeight * weight_error * weight_error);
  weight_service_covariance_ = kDecay * (weight_service_covariance_ + kWeight * weight_error * service_error);
  fixed_cost_ = mean_service_;
  item_cost_ = 0;
  const double item_weight = mean_weight_ / mean_size_;  // so the bounds below do not depend on the unit
  if (weight_variance_ > kFlatVariance * item_weight * item_weight) {
    const double slope = weight_service_covariance_ / weight_variance_;
    const bool spread = weight_variance_ > kSpread * kSpread * mean_weight_ * mean_weight_;
    if (spread) item_cost_ = std::max(0.0, slope) * item_weight;
    fixed_cost_ = std::clamp(mean_service_ - mean_weight_ * slope, 0.0, mean_service_);
  }
}

void BatchPolicy::update_watch() {
  watch_ = std::min(options_.max_latency, saturate(kWatchShare * fixed_cost_));
}

// An arrival before the completion is no return; times of different threads may come out of order.
bool BatchPolicy::counts_as_return(TimePoint now) const {
  return any_completed_ && now >= last_completed_ && now <= later(last_completed_, watch_);
}

// How long after the last dispatch the next batch may start. If all workers start small batches at once, a long queue
// forms meanwhile, and the workers stay in step.
Duration BatchPolicy::spacing(const Queue& queue) const {
  if (options_.workers == 1 || in_flight_ == 0) return Duration::zero();
  if (fixed_cost_ < kSpacingTicks * seconds(kTick)) return Duration::zero();
  const double workers = options_.workers;
  const double even = fixed_cost_ / workers;
  const double waiting = queue.requests;
  if (waiting * workers < waiting + in_flight_) return saturate(even);
  // The queue has its share of all requests, but more may follow in the same burst. The fewer workers are idle, the
  // longer they wait for it.
  const double busy = (workers - queue.idle_workers) / workers;
  return saturate(even * busy * busy);
}

TimePoint BatchPolicy::linger_end() const {
  return later(last_completed_, std::min(watch_, burst_ + kTick));
}

}  // namespace service_streamer
