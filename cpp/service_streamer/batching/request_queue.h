#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "service_streamer/base/clock.h"
#include "service_streamer/batching/batch.h"
#include "service_streamer/batching/batch_limits.h"
#include "service_streamer/batching/request.h"

namespace service_streamer {

// The bounded queue of requests, and the waiting room in front of it. It has no lock and no clock; the engine calls it
// under its mutex. No call blocks. push(), push_waiting() and push_again() may throw std::bad_alloc.
//
// Requests of one priority are first in, first out. A higher priority goes first. With `ageing`, a request gains one
// priority for each such time that it has waited: the request with the least `arrived - priority * ageing` goes first.
//
// The bound counts items that are not in a batch yet. It holds for the items of each priority together with those of
// higher priorities, so that many requests of a low priority never keep out one of a high priority. A request for which
// there is no room may wait in the waiting room. admit() takes the highest priority first, and within it strictly in
// order, so small requests cannot starve a large one.
//
// The queue is grouped once it had a request with traits. Then the items that can be next are in groups of one key
// each. Of a request whose items have several keys, only those up to `run_end` are in a group; the next ones follow
// when these are taken.
class RequestQueue {
 public:
  struct Options {
    std::size_t max_items = 0;
    Duration ageing = Duration::max();  // the maximum: none
    bool ignores_traits = false;        // then the queue is never grouped
    BatchLimits limits = {};            // of a batch, which say when a group is full
  };
  explicit RequestQueue(const Options& options) : options_(options) {}

  void set_batch_size(std::size_t items);

  bool has_room(const Request& request) const;
  void push(Request& request);
  void push_waiting(Request& request);

  // Puts back a request of which all items had left the queue, at its old place. Ignores the bound. Looks for the
  // place from the front, so of several requests put back the latest first.
  void push_again(Request& request);

  // Puts back a request of which all items had left the queue, to run alone after all others. Ignores the bound.
  void push_alone(Request& request);

  // Moves the first request of the waiting room into the queue if there is room, and returns it; otherwise returns
  // nullptr.
  Request* admit();

  // Removes a request from the queue or the waiting room. Does nothing if it is in neither.
  void remove(Request& request);

  // The request that goes next. The queue must not be empty.
  Request& front();

  // What can be in a batch with a queued request, including it.
  struct Company {
    std::size_t items = 0;
    int requests = 0;
    bool full = false;  // it is enough for a batch
  };
  Company company_of(const Request& request) const;

  // A request of a group that is enough for a batch; nullptr if there is none, or if the queue is not grouped.
  Request* front_of_full_group();

  // The request that goes next of those whose next item has this key; nullptr if there is none.
  Request* next_alike(std::uint64_t key);

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

  // The earliest arrival of a queued request; TimePoint::max() if there is none.
  TimePoint oldest() const;
  // The highest priority in the queue. The queue must not be empty.
  int top_priority() const;
  // True if a request of a higher priority than that arrived in the last seconds. The queue must not be empty.
  bool expects_higher_priority(TimePoint now) const;

  std::size_t max_items() const { return options_.max_items; }
  bool grouped() const { return grouped_; }

 private:
  // The requests of one priority.
  struct Lane {
    QueueList queued;
    QueueList waiting;
    std::size_t items = 0;  // of `queued`
    TimePoint last_arrival;

    bool empty() const { return queued.empty() && waiting.empty(); }
  };
  using Lanes = std::map<int, Lane, std::greater<>>;  // the highest priority first

  // The items of one key that can be next.
  struct Group {
    std::map<int, AlikeList, std::greater<>> lanes;  // none is empty
    std::size_t items = 0;
    int requests = 0;
    double weight = 0;
  };
  using Groups = std::unordered_map<std::uint64_t, Group>;

  bool fits(const Request& request) const;
  Lanes::const_iterator top_lane() const;
  Lanes::const_iterator next_lane() const;
  bool goes_before(const Request& low, const Request& high) const;
  void add(Lane& lane, Request& request, Request* before);
  void drop_empty(Lanes::iterator lane);
  void unlink(Request& request);
  void group_all();
  void enter_group(Request& request);
  void leave_group(Request& request);
  void count_in_group(Groups::iterator group, const Request& request, std::uint32_t items, int sign);
  bool is_full(const Group& group) const {
    return group.items >= options_.limits.items || group.weight >= options_.limits.weight;
  }

  Options options_;
  Lanes lanes_;  // a lane may be empty
  bool grouped_ = false;
  Groups groups_;                           // by key; none is empty
  std::unordered_set<std::uint64_t> full_;  // keys of the groups that are enough for a batch
  QueueList alone_;
  std::size_t items_ = 0;
  std::size_t alone_items_ = 0;
  int alone_count_ = 0;
  int requests_ = 0;
  int waiting_count_ = 0;
};

}  // namespace service_streamer
