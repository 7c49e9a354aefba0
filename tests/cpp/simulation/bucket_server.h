#pragma once

// A discrete-event simulation of a server whose items are padded to the longest of their batch. Each request is one
// item.

#include <algorithm>
#include <cstdint>

#include "simulation/matrix.h"
#include "simulation/random.h"

namespace service_streamer::simulation {

enum class Lengths { kLogNormal, kWide, kTwoKinds, kEqual };

// From 4 to 512.
double draw_length(Lengths lengths, Random& random);

// A batch of n items with the longest of length l takes fixed + n * per_item + max(n * l * per_unit, least) seconds. With
// a `knee`, the time of an item grows faster than its length: by 1 + l / knee.
struct PaddedModel {
  const char* name;
  double fixed = 0;
  double per_item = 0;
  double per_unit = 0;
  double least = 0;
  double knee = 0;

  double service(int items, double longest) const {
    const double growth = knee > 0 ? 1 + longest / knee : 1;
    return fixed + items * per_item + std::max(items * longest * per_unit * growth, least);
  }
};

enum class Grouping {
  kNone,     // one queue in the order of arrival
  kStrict,   // the bucket is a key: buckets never share a batch
  kBuckets,  // BucketPolicy
};

struct BucketOutcome {
  double cost = 0;     // open traffic: the mean latency; closed traffic: seconds per item
  double p99 = 0;      // of the latency, in seconds
  double padding = 0;  // share of the padded length
};

// `cell` has the traffic, the number of workers and the size of a batch.
BucketOutcome simulate_buckets(const Cell& cell, const PaddedModel& model, Lengths lengths, Grouping grouping,
                               std::uint64_t seed, int requests);

}  // namespace service_streamer::simulation
