#include "service_streamer/batching/batch_policy.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace service_streamer {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr double kWeight = 1.0 / 8;        // forgets in about 8 batches
constexpr double kDecay = 1 - kWeight;     // of the sums, per batch
constexpr double kFlatVariance = 1.0 / 4;  // batches of equal size give no slope
constexpr double kWatchShare = 1.0 / 4;    // a wrong guess costs a quarter of what a right one saves
constexpr double kBurstOverMean = 2;       // end of a uniform burst, from its mean
constexpr double kGain = 2;                // keeps open traffic out: its break-even is exactly 1
constexpr double kRounding = 1.0 / 2;      // half a caller is nobody
constexpr int kSpacingTicks = 4;           // below this a batch is too short to be spaced
constexpr double kOverhead = 1.0 / 20;     // what a share may cost beyond its items
constexpr double kSpread = 1.0 / 4;        // of sizes, over their mean, that makes a slope to rely on

double seconds(Duration value) {
  return Seconds(value).count();
}

// User options may be as long as the type allows, so nothing here may wrap.
Duration saturate(double value) {
  const double nanoseconds = value * 1e9 + 0.5;  // to the nearest
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
  if (!watching(now)) return;
  back_ += 1;
  back_delay_ += seconds(now - last_completed_);
  due_back_ = std::max(0.0, due_back_ - 1);
}

void BatchPolicy::dispatched(TimePoint now, int finishing) {
  last_dispatched_ = now;
  flying_ += finishing;
}

void BatchPolicy::completed(TimePoint now, std::size_t items, Duration service, int answered) {
  flying_ = std::max(0, flying_ - answered);
  if (items > 0) learn_cost(static_cast<double>(items), std::max(0.0, seconds(service)));

  const double share = sent_ > 0 ? std::min(1.0, back_ / sent_) : 0;
  // Those expected after the batch of another worker are still expected while its watch lasts.
  due_back_ = (watching(now) ? due_back_ : 0) + share * answered;
  expected_ = due_back_;
  // At most two watches, each of a quarter of a service time: cannot overflow.
  burst_ = back_ > 0 ? saturate(kBurstOverMean * back_delay_ / back_) : Duration::zero();
  sent_ = kDecay * sent_ + answered;
  back_ *= kDecay;
  back_delay_ *= kDecay;

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

  // Too fast a model to linger for, or nobody to linger for.
  if (!any_completed_ || watch_ < kTick) return {now, CloseReason::kIdle};
  const TimePoint linger = linger_end();
  const bool expected = expected_ > kRounding;
  if (now >= linger) {
    if (!expected || queue.ready >= linger) return {now, CloseReason::kIdle};
    return {now, due_back_ > kRounding ? CloseReason::kLinger : CloseReason::kReturned};
  }

  // Every other idle worker would take as many as wait here: leave them their fair share.
  const double waiting = queue.requests;
  if (due_back_ <= (queue.idle_workers - 1) * waiting + kRounding) {
    return {now, expected ? CloseReason::kReturned : CloseReason::kIdle};
  }

  // Those here lose the rest of the linger; those to come save a batch of their own.
  const TimePoint end = std::min(linger, bound);
  const double saved = std::min(fixed_cost_, mean_service_ / options_.workers);
  if (kGain * waiting * seconds(end - now) >= due_back_ * saved) return {now, CloseReason::kIdle};
  return {end, end == bound ? CloseReason::kMaxLatency : CloseReason::kLinger};
}

std::size_t BatchPolicy::share(const Queue& queue) const {
  const std::size_t all = options_.batch_size;
  if (options_.kind != PolicyKind::kAdaptive || queue.items >= all || item_cost_ <= 0) return all;
  if (queue.requests == 1 && options_.workers == 1) return all;  // its caller waits for both parts
  const double fixed = std::max(fixed_cost_, seconds(kTick));
  const double least = std::ceil(fixed / (kOverhead * item_cost_));
  const double fair = std::ceil(static_cast<double>(queue.items) / std::max(2, queue.idle_workers));
  return static_cast<std::size_t>(std::clamp(std::max(least, fair), 1.0, static_cast<double>(all)));
}

TimePoint BatchPolicy::watch_end() const {
  const bool expecting =
      options_.kind == PolicyKind::kAdaptive && any_completed_ && watch_ >= kTick && due_back_ > 1 + kRounding;
  return expecting ? linger_end() : TimePoint::min();
}

Duration BatchPolicy::mean_service() const {
  return saturate(mean_service_);
}

void BatchPolicy::learn_cost(double items, double service) {
  if (!any_completed_) {
    mean_service_ = service;
    mean_size_ = items;
  }
  const double size_error = items - mean_size_;
  const double service_error = service - mean_service_;
  mean_size_ += kWeight * size_error;
  mean_service_ += kWeight * service_error;
  size_variance_ = kDecay * (size_variance_ + kWeight * size_error * size_error);
  size_service_covariance_ = kDecay * (size_service_covariance_ + kWeight * size_error * service_error);
  fixed_cost_ = mean_service_;
  item_cost_ = 0;
  if (size_variance_ > kFlatVariance) {
    const double slope = size_service_covariance_ / size_variance_;
    if (size_variance_ > kSpread * kSpread * mean_size_ * mean_size_) item_cost_ = std::max(0.0, slope);
    fixed_cost_ = std::clamp(mean_service_ - mean_size_ * slope, 0.0, mean_service_);
  }
}

void BatchPolicy::update_watch() {
  watch_ = std::min(options_.max_latency, saturate(kWatchShare * fixed_cost_));
}

// A return cannot be older than the completion it answers to, however the stamps were raced.
bool BatchPolicy::watching(TimePoint now) const {
  return any_completed_ && now >= last_completed_ && now <= later(last_completed_, watch_);
}

// Workers that all start at once with little leave a long queue behind them and stay bunched.
Duration BatchPolicy::spacing(const Queue& queue) const {
  if (options_.workers == 1 || flying_ == 0) return Duration::zero();
  if (fixed_cost_ < kSpacingTicks * seconds(kTick)) return Duration::zero();
  const double workers = options_.workers;
  const double even = fixed_cost_ / workers;
  const double waiting = queue.requests;
  if (waiting * workers < waiting + flying_) return saturate(even);
  // A fair share of those alive, but at the start of a burst that says little: the last idle
  // workers are kept for what comes with it.
  const double busy = (workers - queue.idle_workers) / workers;
  return saturate(even * busy * busy);
}

TimePoint BatchPolicy::linger_end() const {
  return later(last_completed_, std::min(watch_, burst_ + kTick));
}

}  // namespace service_streamer
