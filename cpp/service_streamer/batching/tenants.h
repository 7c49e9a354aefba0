#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "service_streamer/batching/request.h"

namespace service_streamer {

// What part of the items of a batch each tenant gets, compared with the others, while several have queued requests.
// Constant. The common tenant, of requests without a tenant, is named "".
struct TenantShares {
  std::map<std::string, double, std::less<>> named;  // each more than 0
  std::optional<double> others = 1;                  // more than 0, of all others; nullopt: they are refused

  // nullopt: requests of this tenant are refused. Those of the common tenant never are.
  std::optional<double> of(std::string_view tenant) const;
};

inline const TenantShares equal_shares;

// A tenant of one priority. Request::account points to it.
struct Tenant {
  double price = 1;  // of an item: 1 / share
  double pass = 0;   // the price of all items taken so far
  QueueList queued = {};
  QueueList waiting = {};
  std::size_t items = 0;  // of `queued`, that are not in a batch
  int requests = 0;       // in both lists; 0: it is idle
};

// True if a request goes before another of the same priority. The tenant with the lower pass is the first, and with the
// same pass the one with fewer queued items. Otherwise the earlier arrival goes first.
inline bool goes_before(const Request& a, const Request& b) {
  if (a.account == b.account) return a.arrived < b.arrived;
  const Tenant &one = *a.account, &other = *b.account;
  if (one.pass != other.pass) return one.pass < other.pass;
  return one.items != other.items ? one.items < other.items : a.arrived < b.arrived;
}

// The queued and waiting requests of one priority by tenant, for RequestQueue. It has no lock, and no call blocks. Only
// prepare() throws.
//
// Tenants get fair shares by start-time fair queueing. A tenant pays for each item that is taken. The pass of an idle
// tenant does not stay behind, so that it saves nothing up. Finding the first request looks at each tenant that is not
// idle: this is made for some hundred of them at a time. Idle tenants are forgotten, so any number of names may come
// and go.
class Tenants {
 public:
  // `shares` outlives this object.
  explicit Tenants(const TenantShares& shares) : shares_(shares), common_{.price = 1 / shares.of("").value_or(1)} {}

  // Allocates what the next add() or wait() of a request needs, and sets its account. Throws std::bad_alloc.
  void prepare(Request& request);

  // Adds a prepared request to the queued or to the waiting ones, behind those of its tenant that arrived earlier.
  void add(Request& request);
  void wait(Request& request);
  // Makes a queued request of a waiting one.
  void admit(Request& request);
  // Removes a request, which has not left with its last item.
  void remove(Request& request);

  // Charges the tenant of a queued request for `items` that go into a batch. `is_first`: it is the first queued one.
  void charge(const Request& request, std::size_t items, bool is_first);
  // Undoes the charges for a prepared request, none of whose items was served.
  void refund(const Request& request);
  // `items` of a queued request, but not all that are left, leave the queue.
  void shrink(const Request& request, std::size_t items);

  bool empty() const { return active_.empty(); }
  std::size_t remembered() const { return named_.size(); }
  std::size_t items() const { return items_; }

  // The request that goes first of those in a list. Only the first request of each tenant is considered, and only if
  // `accept(request)` is true. nullptr: there is none.
  template <typename Accept>
  Request* first(QueueList Tenant::* list, const Accept& accept) const {
    Request* best = nullptr;
    for (const Tenant* tenant : active_) {
      Request* request = (tenant->*list).first();
      if (request == nullptr || (best != nullptr && !goes_before(*request, *best)) || !accept(*request)) continue;
      best = request;
    }
    return best;
  }
  Request* first(QueueList Tenant::* list) const {
    return first(list, [](const Request&) { return true; });
  }

  // The earliest arrival of a queued request; TimePoint::max() if there is none.
  TimePoint oldest() const;

  // nullptr: it is forgotten.
  const Tenant* find(std::string_view name) const;
  // The pass that the tenant would have if a request of it came now.
  double pass_of(std::string_view name) const;
  // The number of queued items that go before the last of `size` new items of this tenant.
  std::size_t items_before(std::string_view name, std::size_t size) const;

  // Calls `call(name, items)` for each tenant that has a name and queued items.
  template <typename Call>
  void for_each_named(const Call& call) const {
    for (const auto& [name, tenant] : named_) {
      if (tenant.items > 0) call(name, tenant.items);
    }
  }

  template <typename Call>
  void for_each(QueueList Tenant::* list, const Call& call) const {
    for (const Tenant* tenant : active_) {
      for (Request* request = (tenant->*list).first(); request != nullptr; request = request->next) call(*request);
    }
  }

 private:
  Tenant& named(std::string_view name);
  void enter(Tenant& tenant);
  void leave(Tenant& tenant);
  void forget_idle();

  const TenantShares& shares_;
  Tenant common_;
  std::map<std::string, Tenant, std::less<>> named_;
  std::vector<Tenant*> active_;  // that have requests
  std::size_t items_ = 0;
  std::size_t forget_at_ = 64;  // the size of named_ that calls for forget_idle()
  double passed_ = 0;           // the pass that a tenant has at least when it becomes active
  double furthest_ = 0;         // the highest pass
};

}  // namespace service_streamer
