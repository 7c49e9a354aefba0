#include "service_streamer/batching/request_groups.h"

#include <algorithm>
#include <cstdint>

namespace service_streamer {

void RequestGroups::hold(const Request& request) {
  std::uint32_t begin = request.dispatched;
  try {
    for (; begin < request.size; begin = request.end_of_run(begin)) {
      const auto group = groups_.try_emplace(request.key(begin)).first;
      try {
        Lane& lane = group->second.lanes[request.priority];
        auto own = std::ranges::find(lane, request.account, &TenantRequests::tenant);
        if (own == lane.end()) own = lane.insert(own, {.tenant = request.account, .requests = {}});
        ++own->holds;
      } catch (...) {
        drop_empty(group, request.priority);
        throw;
      }
    }
  } catch (...) {
    release(request, request.dispatched, begin);
    throw;
  }
}

void RequestGroups::release(const Request& request, std::uint32_t begin, std::uint32_t end) {
  for (; begin < end; begin = request.end_of_run(begin)) {
    const auto group = groups_.find(request.key(begin));
    Lane& lane = group->second.lanes.find(request.priority)->second;
    const auto own = std::ranges::find(lane, request.account, &TenantRequests::tenant);
    if (--own->holds > 0) continue;
    *own = lane.back();
    lane.pop_back();
    drop_empty(group, request.priority);
  }
}

void RequestGroups::enter(Request& request) {
  request.run_end = request.end_of_run(request.dispatched);
  Group& group = group_of(request);
  AlikeList& list = list_of(group, request);
  Request* later = nullptr;
  if (!list.empty() && list.last()->arrived > request.arrived) {
    later = list.first();
    while (later->arrived <= request.arrived) later = later->next_alike;
  }
  list.insert(request, later);
  if (++group.requests == 1) ++count_;
  group.items += request.run_end - request.dispatched;
  if (limits_.weighs()) weigh(group, request);
  list_if_full(group);
}

void RequestGroups::leave(Request& request) {
  Group& group = group_of(request);
  list_of(group, request).erase(request);
  if (--group.requests == 0) --count_;
  group.items -= request.run_end - request.dispatched;
  group.stale = true;
  release(request, request.dispatched, request.run_end);
}

void RequestGroups::leave_all(Request& request) {
  const std::uint32_t end = request.run_end;
  leave(request);
  release(request, end);
}

void RequestGroups::shrink(const Request& request, std::uint32_t items) {
  Group& group = group_of(request);
  group.items -= items;
  group.stale = true;
}

RequestGroups::Company RequestGroups::company_of(std::uint64_t key) {
  const auto found = groups_.find(key);
  if (found == groups_.end()) return {};
  Group& group = found->second;
  const bool full = is_full(group);  // it also weighs the group again
  return {.items = group.items, .requests = group.requests, .full = full, .sum = group.sum, .heaviest = group.heaviest};
}

Request* RequestGroups::first(std::uint64_t key) const {
  const auto group = groups_.find(key);
  return group != groups_.end() ? order_.first_of(group->second.lanes, first_in) : nullptr;
}

Request* RequestGroups::first_of_full() {
  Request* best = nullptr;
  for (Group *group = full_.first(), *next = nullptr; group != nullptr; group = next) {
    next = group->next_full;
    if (is_full(*group)) {
      Request* first = order_.first_of(group->lanes, first_in);
      if (best == nullptr || order_.before(*first, *best)) best = first;
    } else {
      unlist(*group);
    }
  }
  return best;
}

void RequestGroups::set_limits(const BatchLimits& limits) {
  limits_ = limits;
  for (auto& [key, group] : groups_) list_if_full(group);
}

// The group of the request's next items.
RequestGroups::Group& RequestGroups::group_of(const Request& request) {
  return groups_.find(request.key(request.dispatched))->second;
}

AlikeList& RequestGroups::list_of(Group& group, const Request& request) {
  Lane& lane = group.lanes.find(request.priority)->second;
  return std::ranges::find(lane, request.account, &TenantRequests::tenant)->requests;
}

Request* RequestGroups::first_in(const Lane& lane) {
  Request* best = nullptr;
  for (const TenantRequests& one : lane) {
    Request* first = one.requests.first();
    if (first != nullptr && (best == nullptr || goes_before(*first, *best))) best = first;
  }
  return best;
}

// Erases the lane, and then the group, if nothing holds it.
void RequestGroups::drop_empty(Groups::iterator group, int priority) {
  auto& lanes = group->second.lanes;
  if (const auto lane = lanes.find(priority); lane != lanes.end() && lane->second.empty()) lanes.erase(lane);
  if (!lanes.empty()) return;
  unlist(group->second);
  groups_.erase(group);
}

// Adds the weights of the request's next items.
void RequestGroups::weigh(Group& group, const Request& request) const {
  for (std::uint32_t i = request.dispatched; i < request.run_end; ++i) {
    group.sum += request.weight(i);
    group.heaviest = std::max(group.heaviest, request.weight(i));
  }
}

// Weighs a group again only if it has fewer items than a batch.
bool RequestGroups::is_full(Group& group) const {
  if (group.items >= limits_.items) return true;
  if (!limits_.weighs() || group.items == 0) return false;
  if (group.stale) {
    group.sum = group.heaviest = 0;
    for (const auto& [priority, lane] : group.lanes) {
      for (const TenantRequests& one : lane) {
        for (const Request* next = one.requests.first(); next != nullptr; next = next->next_alike) weigh(group, *next);
      }
    }
    group.stale = false;
  }
  const double weight = limits_.padded ? static_cast<double>(group.items) * group.heaviest : group.sum;
  return weight >= limits_.weight;
}

void RequestGroups::list_if_full(Group& group) {
  if (group.may_be_full || !is_full(group)) return;
  full_.push_back(group);
  group.may_be_full = true;
}

void RequestGroups::unlist(Group& group) {
  if (!group.may_be_full) return;
  full_.erase(group);
  group.may_be_full = false;
}

}  // namespace service_streamer
