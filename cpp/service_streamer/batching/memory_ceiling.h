#pragma once

#include <limits>

namespace service_streamer {

// Learns how large a batch may be before the model runs out of memory. Sizes are items, or weights if batches are
// weighed. The class has no lock, clock or thread: it counts the batches that its limit has closed. The engine has one
// for each worker, and calls it under its mutex. No call blocks, allocates or throws, and each takes constant time.
//
// The rule is like the one that TCP has for the memory of a network, additive increase and multiplicative decrease:
//   - A batch fails that had room before: the limit falls to the part of it that ran. Then it climbs by a small step
//     after every few batches. If failures follow each other soon, the climb is slower for a while.
//   - A batch fails that is larger than any before: the limit goes back to the largest that ran, and rests there. Then
//     it climbs again.
//
// Decision 082 has the constants and a simulation.
class MemoryCeiling {
 public:
  static constexpr double kNone = std::numeric_limits<double>::infinity();

  // The largest size of a batch; kNone: nothing was learned. A single item may be larger.
  double limit() const { return limit_; }

  // A batch or a part of one had too little memory, but its items ran in smaller parts. `passed` is the size of the
  // largest part.
  void failed(double size, double passed);

  // A batch that the limit had closed has run. There is no limit once it reaches `most`, which batches have without it;
  // the size that ran is remembered, for if `most` fails. A step is at least `least_step`.
  void passed(double size, double most, double least_step);

 private:
  double limit_ = kNone;
  double good_ = 0;       // the largest size that ran since the limit fell
  int pace_ = 0;          // batches per step of the climb
  int left_ = 0;          // batches until the next step
  int since_failed_ = 0;  // batches
};

}  // namespace service_streamer
