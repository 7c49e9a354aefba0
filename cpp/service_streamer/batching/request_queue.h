#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>

#include "service_streamer/base/clock.h"
#include "service_streamer/batching/batch.h"
#include "service_streamer/batching/batch_limits.h"
#include "service_streamer/batching/request.h"
#include "service_streamer/batching/request_groups.h"
#include "service_streamer/batching/request_order.h"
#include "service_streamer/batching/tenants.h"

namespace service_streamer {

// The bounded queue of requests, and the waiting room in front of it. It has no lock and no clock; the engine calls it
// under its mutex. No call blocks. push(), push_waiting() and push_again() may throw std::bad_alloc, and then the
// request is not in the queue. No other call throws unless it says so.
//
// RequestOrder says which request goes next. Within a priority, tenants get fair shares (tenants.h).
//
// The bound counts items that are not in a batch yet. It holds for the items of each priority together with those of
// higher priorities, so that many requests of a low priority never keep out one of a high priority. So the queue has at
// most as many items as the bound times the number of priorities. The bound of one tenant's items, and that of the
// weight of all items, hold in the same way.
//
// A request for which there is no room may wait in the waiting room. admit() takes the request that goes first, so
// small requests cannot starve a large one. Requests that their tenant's bound keeps out do not hold up others.
//
// The queue is grouped once it had a request with keys or weights.
class RequestQueue {
 public:
  struct Options {
    std::size_t max_items = 0;
    double max_weight = std::numeric_limits<double>::infinity();
    std::size_t max_items_per_tenant = 0;  // 0: there is no such bound
    Duration ageing = Duration::max();     // the maximum: none
    bool ignores_traits = false;           // then the queue is never grouped
    BatchLimits limits = {};               // of a batch, which say when a group is full
  };
  // `shares` outlives the queue.
  explicit RequestQueue(const Options& options, const TenantShares& shares = equal_shares)
      : options_(options), shares_(shares), order_(options.ageing) {}

  // They weigh the items if the limits before did.
  void set_limits(const BatchLimits& limits);

  bool has_room(const Request& request) const;
  // True if the bound of its tenant, or of the weight, allows the request.
  bool tenant_has_room(const Request& request) const;
  bool weight_has_room(const Request& request) const;
  void push(Request& request);
  void push_waiting(Request& request);

  // Puts back a request of which all items had left the queue, at its old place among those of its tenant, which then
  // has not paid for it. Ignores the bounds. Looks for the place from the front, so of several requests put back the
  // latest first.
  void push_again(Request& request);

  // Puts back a request of which all items had left the queue, to run alone after all others. Ignores the bounds.
  void push_alone(Request& request);

  // Moves the first request of the waiting room that its tenant's bound allows into the queue if there is room, and
  // returns it; otherwise returns nullptr.
  Request* admit();

  // Removes a request from the queue or the waiting room. Does nothing if it is in neither.
  void remove(Request& request);

  // The request that goes next. The queue must not be empty.
  Request& front() const;

  // What can be in a batch with a queued request, including it.
  using Company = RequestGroups::Company;
  Company company_of(const Request& request);
  // The same for all requests whose next item has this key. The queue must be grouped.
  Company company_of(std::uint64_t key) { return groups_->company_of(key); }

  // The request that goes first of those in groups that are enough for a batch; nullptr if there is none, or if the
  // queue is not grouped.
  Request* first_of_full_group() { return grouped() ? groups_->first_of_full() : nullptr; }

  // The request that goes next of those whose next item has this key; nullptr if there is none.
  Request* next_alike(std::uint64_t key) const;

  // Cuts `count` items off a queued request, not more than up to its `run_end`. The request leaves the queue with its
  // last item.
  RequestRange take(Request& request, std::uint32_t count);

  // Without requests that run alone.
  std::size_t items() const { return items_; }
  int requests() const { return requests_; }
  int waiting() const { return waiting_count_; }

  std::size_t alone_items() const { return alone_items_; }
  int alone_requests() const { return alone_count_; }
  bool empty() const { return requests_ == 0 && alone_count_ == 0 && waiting_count_ == 0; }

  // The number of items that go before the last one of a new request, of its priority, or are of another priority.
  std::size_t items_before(const Request& request) const;
  // What these items weigh, and all queued ones; 0 if the weight is not bounded.
  double weight_before(const Request& request) const;
  double weight() const;
  // The queued items of a tenant.
  std::size_t items_of(std::string_view tenant) const;
  // The tenants with a name that have the most queued items, and these items. Throws std::bad_alloc.
  std::map<std::string, std::uint64_t> largest_tenants(std::size_t most) const;
  // The earliest arrival of a queued request; TimePoint::max() if there is none.
  TimePoint oldest() const;
  // The highest priority in the queue. The queue must not be empty.
  int top_priority() const;
  // True if a request of a higher priority than that arrived in the last seconds. The queue must not be empty.
  bool expects_higher_priority(TimePoint now) const;

  std::size_t max_items() const { return options_.max_items; }
  const BatchLimits& limits() const { return options_.limits; }
  bool grouped() const { return groups_ != nullptr; }
  // The number of groups with a request.
  int groups() const { return grouped() ? groups_->count() : 1; }

 private:
  // The requests of one priority.
  struct Lane {
    explicit Lane(const TenantShares& shares) : tenants(shares) {}

    Tenants tenants;
    TimePoint last_arrival;
    double weight = 0;  // of the queued items; 0 if it is not bounded
  };
  using Lanes = std::map<int, Lane, std::greater<>>;  // the highest priority first

  bool fits(const Request& request) const;
  bool weighs() const { return options_.max_weight != std::numeric_limits<double>::infinity(); }
  Request* first_waiting() const;
  Lanes::const_iterator top_lane() const;
  Lane& prepare(Request& request);
  void group_all();
  void note_queued(Lane& lane, Request& request);
  void drop_empty(Lanes::iterator lane);
  void unlink(Request& request, Lanes::iterator lane);

  Options options_;
  const TenantShares& shares_;
  RequestOrder order_;
  Lanes lanes_;  // a lane may be empty
  std::unique_ptr<RequestGroups> groups_;
  QueueList alone_;
  std::size_t items_ = 0;
  std::size_t alone_items_ = 0;
  int alone_count_ = 0;
  int requests_ = 0;
  int waiting_count_ = 0;
};

}  // namespace service_streamer
