#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "batching/request_queue_testing.h"
#include "service_streamer/batching/request_queue.h"
#include "simulation/random.h"

namespace service_streamer {
namespace {

constexpr std::size_t kMaxItems = 40;
constexpr std::size_t kMaxOfTenant = 15;

// Plain lists that are searched from end to end, and a pass of each tenant of each priority that is never forgotten.
class PlainTenants {
 public:
  explicit PlainTenants(const TenantShares& shares) : shares_(shares) {}

  using Account = std::pair<int, std::string>;  // priority and tenant
  static Account account_of(const Request& request) { return {request.priority, std::string(request.tenant())}; }
  static std::uint32_t left(const Request& request) { return request.size - request.dispatched; }

  bool fits(const Request& request) const {
    const std::size_t ahead = items_ahead(request, false);
    return ahead == 0 || ahead + request.size <= kMaxItems;
  }
  bool tenant_fits(const Request& request) const {
    const std::size_t ahead = items_ahead(request, true);
    return ahead == 0 || ahead + request.size <= kMaxOfTenant;
  }

  Request* next_waiting() const {
    return first_of(waiting, [this](const Request& request) { return tenant_fits(request); });
  }
  Request* admitted() const {
    Request* first = next_waiting();
    return first != nullptr && fits(*first) ? first : nullptr;
  }
  Request* front() const {
    return first_of(queued, [](const Request&) { return true; });
  }

  bool has_room(const Request& request) const {
    const auto of_same = [&](const Request* other) { return account_of(*other) == account_of(request); };
    if (!fits(request) || !tenant_fits(request) || std::ranges::any_of(waiting, of_same)) return false;
    const Request* first = next_waiting();
    if (first == nullptr) return true;
    const auto [priority, pass, items, arrived] = turn(request);
    const auto [first_priority, first_pass, first_items, first_arrived] = turn(*first);
    return std::tie(priority, pass) < std::tie(first_priority, first_pass);
  }

  void enter(Request& request, std::vector<Request*>& list) {
    double& pass = pass_[account_of(request)];
    if (!active(account_of(request))) pass = std::max(pass, passed_[request.priority]);
    list.push_back(&request);
  }
  void leave(Request& request, std::vector<Request*>& list) {
    std::erase(list, &request);
    const auto same = [&](const Request* other) { return other->priority == request.priority; };
    if (std::ranges::any_of(queued, same) || std::ranges::any_of(waiting, same)) return;
    for (const auto& [account, pass] : pass_) {
      if (account.first == request.priority) passed_[account.first] = std::max(passed_[account.first], pass);
    }
  }
  void charge(const Request& request, std::uint32_t items) {
    double& passed = passed_[request.priority];
    passed = std::max(passed, pass_.at(account_of(request)));
    pass_.at(account_of(request)) += items * (1 / shares_.of(request.tenant()).value());
  }

  std::vector<Request*> queued;
  std::vector<Request*> waiting;

 private:
  std::tuple<int, double, std::size_t, TimePoint> turn(const Request& request) const {
    const auto found = pass_.find(account_of(request));
    double pass = found != pass_.end() ? found->second : 0;
    const auto passed = passed_.find(request.priority);
    if (!active(account_of(request)) && passed != passed_.end()) pass = std::max(pass, passed->second);
    std::size_t items = 0;
    for (const Request* other : queued) items += account_of(*other) == account_of(request) ? left(*other) : 0;
    return {-request.priority, pass, items, request.arrived};
  }

  bool active(const Account& account) const {
    const auto same = [&](const Request* request) { return account_of(*request) == account; };
    return std::ranges::any_of(queued, same) || std::ranges::any_of(waiting, same);
  }

  std::size_t items_ahead(const Request& request, bool of_tenant) const {
    std::size_t ahead = 0;
    for (const Request* other : queued) {
      const bool counts = !of_tenant || other->tenant() == request.tenant();
      ahead += counts && other->priority >= request.priority ? left(*other) : 0;
    }
    return ahead;
  }

  // The first of the requests that are the first of their tenant and are accepted.
  template <typename Accept>
  Request* first_of(const std::vector<Request*>& list, const Accept& accept) const {
    std::map<Account, Request*> firsts;
    for (Request* request : list) {
      Request*& first = firsts[account_of(*request)];
      if (first == nullptr || request->arrived < first->arrived) first = request;
    }
    Request* best = nullptr;
    for (const auto& [account, first] : firsts) {
      if (accept(*first) && (best == nullptr || turn(*first) < turn(*best))) best = first;
    }
    return best;
  }

  const TenantShares& shares_;
  std::map<Account, double> pass_;
  std::map<int, double> passed_;
};

class RandomTenantsTest : public testing::Test, protected Requests {};

TEST_F(RandomTenantsTest, BehaveAsPlainLists) {
  simulation::Random random(7);
  const TenantShares shares{.named = {{"a", 0.5}, {"b", 4}}, .others = 1};
  RequestQueue queue({.max_items = kMaxItems, .max_items_per_tenant = kMaxOfTenant}, shares);
  PlainTenants plain(shares);
  const std::vector<std::string> names{"", "a", "b", "c", "d", "e"};
  for (int step = 0; step < 8'000; ++step) {
    const int what = random.between(0, 9);
    if (what < 4) {
      const auto name = static_cast<std::size_t>(random.between(0, static_cast<int>(names.size()) - 1));
      const auto size = static_cast<std::uint32_t>(random.between(1, random.uniform() < 0.9 ? 9 : 45));
      Request& request = make_of(names[name], size, random.between(0, 1), step);
      const bool room = plain.has_room(request);
      ASSERT_EQ(queue.has_room(request), room) << step;
      ASSERT_EQ(queue.tenant_has_room(request), plain.tenant_fits(request));
      plain.enter(request, room ? plain.queued : plain.waiting);
      room ? queue.push(request) : queue.push_waiting(request);
    } else if (what < 8 && !plain.queued.empty()) {
      Request* expected = plain.front();
      ASSERT_EQ(&queue.front(), expected) << step;
      const std::uint32_t count = std::min(static_cast<std::uint32_t>(random.between(1, 6)), plain.left(*expected));
      plain.charge(*expected, count);
      queue.take(*expected, count);
      if (PlainTenants::left(*expected) == 0) plain.leave(*expected, plain.queued);
    } else if (what == 8) {
      auto& from = random.uniform() < 0.5 ? plain.queued : plain.waiting;
      if (from.empty()) continue;
      Request& one = *from[static_cast<std::size_t>(random.between(0, static_cast<int>(from.size()) - 1))];
      queue.remove(one);
      plain.leave(one, from);
      one.phase = Request::Phase::kEnded;
    } else {
      Request* expected = plain.admitted();
      ASSERT_EQ(queue.admit(), expected) << step;
      if (expected == nullptr) continue;
      plain.queued.push_back(expected);
      std::erase(plain.waiting, expected);
    }
    std::size_t items = 0;
    for (const Request* request : plain.queued) items += PlainTenants::left(*request);
    ASSERT_EQ(queue.items(), items);
    ASSERT_EQ(queue.waiting(), static_cast<int>(plain.waiting.size()));
    ASSERT_EQ(queue.empty(), plain.queued.empty() && plain.waiting.empty());
  }
}

}  // namespace
}  // namespace service_streamer
