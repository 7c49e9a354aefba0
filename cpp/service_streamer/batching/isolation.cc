#include "service_streamer/batching/isolation.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace service_streamer {
namespace {

constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

// An upper bound of the runs of a search in which a quarter of the requests are guilty, and of the runs that halve a
// batch until the memory is enough.
std::size_t free_runs(std::size_t requests, std::size_t items) {
  return std::max(requests + requests / 4 + 3, 2 * static_cast<std::size_t>(std::bit_width(items)));
}

Duration times(double factor, Duration duration) {
  const double product = factor * static_cast<double>(duration.count());
  const auto max = static_cast<double>(Duration::max().count());
  return product < max ? Duration(static_cast<Duration::rep>(product)) : Duration::max();
}

}  // namespace

Isolation::Isolation(const FirstRun& first, double budget)
    : requests_(first.requests),
      free_runs_(free_runs(first.requests, first.items)),
      begun_(first.end),
      budget_(times(budget, first.end - first.begin)),
      suspects_(first.requests),
      item_limit_(kNoLimit) {}

bool Isolation::over(TimePoint now) {
  if (guilty_ > requests_ / 4 || runs_ >= free_runs_) over_ = over_ || now - begun_ >= budget_;
  return over_;
}

std::size_t Isolation::start_run(std::size_t ranges) {
  ++runs_;
  suspects_ = std::min(suspects_, ranges);
  return over_ ? 1 : group(ranges);
}

std::size_t Isolation::group(std::size_t ranges) const {
  if (suspects_ == 1) return 1;
  // The whole batch is suspected and may have many guilty requests: try a third.
  if (suspects_ == requests_) return std::max<std::size_t>(requests_ / 3, 1);
  if (suspects_ > 1) return suspects_ / 2;
  // Expect half a guilty request in the group, by the share found so far.
  const std::size_t resolved = requests_ - std::min(ranges, requests_);
  return std::clamp<std::size_t>((2 * resolved + requests_) / (4 * guilty_ + 1), 1, ranges);
}

void Isolation::passed() {
  suspects_ -= std::min(suspects_, running_);
  if (failed_items_ > 0) passed_items_ = std::max(passed_items_, running_items_);
  if (item_limit_ == kNoLimit) return;
  if (passed_below_) item_limit_ = item_limit_ > kNoLimit / 2 ? kNoLimit : 2 * item_limit_;
  passed_below_ = !passed_below_;
}

bool Isolation::failed(std::size_t ranges, std::size_t items, bool out_of_memory) {
  if (out_of_memory && items > 1) failed_items_ = std::min(failed_items_ > 0 ? failed_items_ : items, items);
  if (out_of_memory && items == 1) failed_alone_ = true;
  if (out_of_memory && items > 1 && !over_) {
    item_limit_ = items / 2;
    passed_below_ = false;
    suspects_ = 0;
    return false;
  }
  suspects_ = ranges > 1 ? ranges : 0;
  if (ranges == 1) ++guilty_;
  return ranges == 1;
}

}  // namespace service_streamer
