#pragma once

// Learns how long a batch takes, as a line over the number of items. The class has no lock and no clock. No call
// blocks, allocates or throws, and each takes constant time. Times are in seconds.

#include <cstddef>

namespace service_streamer {

class BatchCost {
 public:
  // A batch of `items`, at least 1, took `service`. About the last 16 batches count. A time of more than twice the
  // expected one counts as twice that time, because the next batch is probably as before.
  void learn(double items, double service);

  bool known() const { return batches_ > 0; }

  // The expected time of a batch. It is the same for all sizes until batches of different sizes have run, and 0 before
  // the first batch.
  double expected(double items) const { return mean_service_ + (items - mean_size_) * item_cost_; }

  // The slope of the line, at least 0.
  double item_cost() const { return item_cost_; }

  // The largest number of items, from 0 to `most`, of which a batch is expected to take at most `service`. Until
  // batches of different sizes have run, it is at most twice their size.
  std::size_t largest(double service, std::size_t most) const;

 private:
  void learn_slope(double items, double service);

  int batches_ = 0;  // counts to a limit
  double mean_size_ = 0;
  double mean_service_ = 0;
  double item_cost_ = 0;
  bool has_slope_ = false;
};

}  // namespace service_streamer
