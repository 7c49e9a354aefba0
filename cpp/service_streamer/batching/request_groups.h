#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <unordered_map>
#include <vector>

#include "service_streamer/batching/batch_limits.h"
#include "service_streamer/batching/intrusive_list.h"
#include "service_streamer/batching/request.h"
#include "service_streamer/batching/request_order.h"
#include "service_streamer/batching/tenants.h"

namespace service_streamer {

// The queued requests by the key of their next items, for RequestQueue. Of a request whose items have several keys,
// only those up to `run_end` are in a group. It has no lock, and no call blocks.
//
// hold() allocates the groups of a request, which has an account. Until release() no other call for this request
// allocates or throws.
class RequestGroups {
 public:
  RequestGroups(const BatchLimits& limits, const RequestOrder& order) : limits_(limits), order_(order) {}

  // Makes the groups of the items from `dispatched` on. Throws std::bad_alloc, and then nothing has changed.
  void hold(const Request& request);
  // Gives up the groups of the items from `begin` on.
  void release(const Request& request, std::uint32_t begin) { release(request, begin, request.size); }

  // Adds a request that is held to the group of its next items, which end at `run_end` from now on.
  void enter(Request& request);
  // Takes the request out of its group, and gives up its groups: leave() of the items up to `run_end`, leave_all() of
  // all items.
  void leave(Request& request);
  void leave_all(Request& request);
  // The next `items` of the request, fewer than up to `run_end`, leave the queue.
  void shrink(const Request& request, std::uint32_t items);

  // What can be in a batch with a request that is in a group, including it.
  struct Company {
    std::size_t items = 0;
    int requests = 0;
    bool full = false;    // it is enough for a batch
    double sum = 0;       // of the weights; only if they count and `items` are fewer than a batch has
    double heaviest = 0;  // the same
  };
  Company company_of(const Request& request) { return company_of(request.key(request.dispatched)); }
  Company company_of(std::uint64_t key);

  // The request that goes first of those whose next item has this key; nullptr if there is none.
  Request* first(std::uint64_t key) const;
  // The same of those in groups that are enough for a batch.
  Request* first_of_full();

  // The number of groups with a request.
  int count() const { return count_; }

  void set_limits(const BatchLimits& limits);

 private:
  struct TenantRequests {
    Tenant* tenant = nullptr;
    AlikeList requests;
    int holds = 0;  // by runs of requests; it stays until there are none
  };
  using Lane = std::vector<TenantRequests>;  // in any order; it has at least one
  struct Group {
    std::map<int, Lane, std::greater<>> lanes;  // by priority
    std::size_t items = 0;
    int requests = 0;
    double sum = 0;            // of the weights; only if they count
    double heaviest = 0;       // the same
    bool stale = false;        // items have left: `sum` and `heaviest` may be too high
    bool may_be_full = false;  // it is in full_
    Group* previous_full = nullptr;
    Group* next_full = nullptr;
  };
  using Groups = std::unordered_map<std::uint64_t, Group>;

  Group& group_of(const Request& request);
  static AlikeList& list_of(Group& group, const Request& request);
  static Request* first_in(const Lane& lane);
  void drop_empty(Groups::iterator group, int priority);
  void release(const Request& request, std::uint32_t begin, std::uint32_t end);
  void weigh(Group& group, const Request& request) const;
  bool is_full(Group& group) const;
  void list_if_full(Group& group);
  void unlist(Group& group);

  BatchLimits limits_;
  RequestOrder order_;
  Groups groups_;                                                        // each is held
  IntrusiveList<Group, &Group::previous_full, &Group::next_full> full_;  // also some that were full before
  int count_ = 0;
};

}  // namespace service_streamer
