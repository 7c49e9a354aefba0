#include "service_streamer/batching/request_queue.h"

#include <algorithm>

namespace service_streamer {
namespace {

// When a request would have arrived to have its turn in the order of arrival. Priorities and durations may be large.
__int128 virtual_arrival(const Request& request, Duration ageing) {
  return __int128{request.arrived.time_since_epoch().count()} - __int128{request.priority} * ageing.count();
}

}  // namespace

bool RequestQueue::has_room(const Request& request) const {
  if (waiting_count_ > 0) {
    for (const auto& [priority, lane] : lanes_) {
      if (priority < request.priority) break;
      if (!lane.waiting.empty()) return false;
    }
  }
  return fits(request);
}

void RequestQueue::push(Request& request) {
  add(lanes_[request.priority], request, nullptr);
}

void RequestQueue::push_waiting(Request& request) {
  lanes_[request.priority].waiting.push_back(request);
  request.phase = Request::Phase::kWaiting;
  ++waiting_count_;
}

void RequestQueue::push_again(Request& request) {
  Lane& lane = lanes_[request.priority];
  Request* later = lane.queued.first();
  while (later != nullptr && later->arrived <= request.arrived) later = later->next;
  request.dispatched = 0;
  add(lane, request, later);
}

void RequestQueue::push_alone(Request& request) {
  alone_.push_back(request);
  request.alone = true;
  request.run_end = request.size;
  request.phase = Request::Phase::kQueued;
  request.dispatched = 0;
  alone_items_ += request.size;
  ++alone_count_;
}

void RequestQueue::set_batch_size(std::size_t items) {
  options_.limits.items = items;
  full_.clear();
  for (const auto& [key, group] : groups_) {
    if (is_full(group)) full_.insert(key);
  }
}

Request* RequestQueue::admit() {
  if (waiting_count_ == 0) return nullptr;
  const auto lane = std::ranges::find_if(lanes_, [](const auto& each) { return !each.second.waiting.empty(); });
  Request& request = *lane->second.waiting.first();
  if (!fits(request)) return nullptr;
  lane->second.waiting.erase(request);
  --waiting_count_;
  add(lane->second, request, nullptr);
  return &request;
}

void RequestQueue::remove(Request& request) {
  if (request.phase == Request::Phase::kWaiting) {
    const auto lane = lanes_.find(request.priority);
    lane->second.waiting.erase(request);
    --waiting_count_;
    drop_empty(lane);
  } else if (request.phase == Request::Phase::kQueued) {
    unlink(request);
  }
}

Request& RequestQueue::front() {
  return requests_ > 0 ? *next_lane()->second.queued.first() : *alone_.first();
}

RequestQueue::Company RequestQueue::company_of(const Request& request) const {
  if (request.alone) return {.items = request.size, .requests = 1};
  if (!grouped_) return {.items = items_, .requests = requests_, .full = items_ >= options_.limits.items};
  const Group& group = groups_.find(request.key(request.dispatched))->second;
  return {.items = group.items, .requests = group.requests, .full = is_full(group)};
}

Request* RequestQueue::front_of_full_group() {
  return full_.empty() ? nullptr : next_alike(*full_.begin());
}

Request* RequestQueue::next_alike(std::uint64_t key) {
  if (!grouped_) return requests_ > 0 ? &front() : nullptr;
  const auto group = groups_.find(key);
  if (group == groups_.end()) return nullptr;
  Request* next = nullptr;
  for (const auto& [priority, list] : group->second.lanes) {
    if (next == nullptr || goes_before(*list.first(), *next)) next = list.first();
  }
  return next;
}

RequestRange RequestQueue::take(Request& request, std::uint32_t count) {
  const RequestRange range{.request = &request, .begin = request.dispatched, .count = count};
  if (request.dispatched + count == request.size) {
    unlink(request);
    request.dispatched = request.size;
    request.phase = Request::Phase::kDispatched;
  } else if (request.alone) {
    alone_items_ -= count;
    request.dispatched += count;
  } else {
    items_ -= count;
    lanes_.find(request.priority)->second.items -= count;
    const bool ends_run = request.dispatched + count == request.run_end;
    if (ends_run) {
      leave_group(request);
    } else if (grouped_) {
      count_in_group(groups_.find(request.key(request.dispatched)), request, count, -1);
    }
    request.dispatched += count;
    if (ends_run) enter_group(request);
  }
  return range;
}

TimePoint RequestQueue::oldest() const {
  TimePoint oldest = TimePoint::max();
  for (const auto& [priority, lane] : lanes_) {
    if (!lane.queued.empty()) oldest = std::min(oldest, lane.queued.first()->arrived);
  }
  return oldest;
}

int RequestQueue::top_priority() const {
  return top_lane()->first;
}

bool RequestQueue::expects_higher_priority(TimePoint now) const {
  const TimePoint lately = now - std::chrono::seconds(10);
  return std::any_of(lanes_.begin(), top_lane(),
                     [lately](const auto& lane) { return lane.second.last_arrival > lately; });
}

// True if the bound allows the request, apart from what is in the waiting room.
bool RequestQueue::fits(const Request& request) const {
  std::size_t ahead = 0;
  for (const auto& [priority, lane] : lanes_) {
    if (priority < request.priority) break;
    ahead += lane.items;
  }
  return ahead == 0 || ahead + request.size <= options_.max_items;
}

RequestQueue::Lanes::const_iterator RequestQueue::top_lane() const {
  return std::ranges::find_if(lanes_, [](const auto& lane) { return !lane.second.queued.empty(); });
}

// The lane of the request that goes next.
RequestQueue::Lanes::const_iterator RequestQueue::next_lane() const {
  auto next = top_lane();
  if (options_.ageing == Duration::max()) return next;
  for (auto lane = next; lane != lanes_.end(); ++lane) {
    if (lane->second.queued.empty()) continue;
    if (goes_before(*lane->second.queued.first(), *next->second.queued.first())) next = lane;
  }
  return next;
}

// Whether a request goes before one of a higher priority.
bool RequestQueue::goes_before(const Request& low, const Request& high) const {
  return options_.ageing != Duration::max() &&
         virtual_arrival(low, options_.ageing) < virtual_arrival(high, options_.ageing);
}

void RequestQueue::add(Lane& lane, Request& request, Request* before) {
  lane.queued.insert(request, before);
  lane.items += request.size;
  lane.last_arrival = std::max(lane.last_arrival, request.arrived);
  request.phase = Request::Phase::kQueued;
  items_ += request.size;
  ++requests_;
  if (request.traits != nullptr && !grouped_ && !options_.ignores_traits) {
    group_all();
  } else {
    enter_group(request);
  }
}

void RequestQueue::group_all() {
  grouped_ = true;
  for (auto& [priority, lane] : lanes_) {
    for (Request* request = lane.queued.first(); request != nullptr; request = request->next) enter_group(*request);
  }
}

// Adds the request to the group of its next items.
void RequestQueue::enter_group(Request& request) {
  request.run_end = request.size;
  if (!grouped_) return;
  const std::uint64_t key = request.key(request.dispatched);
  const auto group = groups_.try_emplace(key).first;
  AlikeList& list = group->second.lanes[request.priority];
  Request* later = nullptr;
  if (!list.empty() && list.last()->arrived > request.arrived) {
    later = list.first();
    while (later->arrived <= request.arrived) later = later->next_alike;
  }
  list.insert(request, later);
  ++group->second.requests;
  request.run_end = request.dispatched + 1;
  while (request.run_end < request.size && request.key(request.run_end) == key) ++request.run_end;
  count_in_group(group, request, request.run_end - request.dispatched, 1);
}

void RequestQueue::leave_group(Request& request) {
  if (!grouped_) return;
  const auto group = groups_.find(request.key(request.dispatched));
  const auto lane = group->second.lanes.find(request.priority);
  lane->second.erase(request);
  if (lane->second.empty()) group->second.lanes.erase(lane);
  --group->second.requests;
  count_in_group(group, request, request.run_end - request.dispatched, -1);
  if (group->second.requests == 0) groups_.erase(group);
}

// Adds the next items of the request to the counts of its group, or subtracts them.
void RequestQueue::count_in_group(Groups::iterator group, const Request& request, std::uint32_t items, int sign) {
  auto& [key, counts] = *group;
  counts.items += static_cast<std::size_t>(sign * static_cast<std::int64_t>(items));
  for (std::uint32_t i = 0; i < items; ++i) counts.weight += sign * request.weight(request.dispatched + i);
  if (is_full(counts)) {
    full_.insert(key);
  } else {
    full_.erase(key);
  }
}

void RequestQueue::drop_empty(Lanes::iterator lane) {
  constexpr std::size_t kKeptLanes = 8;  // keep a few empty lanes, because the same priorities come again
  if (lane->second.empty() && lanes_.size() > kKeptLanes) lanes_.erase(lane);
}

// Takes the request out of the queue, with its items that are not in a batch.
void RequestQueue::unlink(Request& request) {
  const std::size_t left = request.size - request.dispatched;
  if (request.alone) {
    alone_.erase(request);
    alone_items_ -= left;
    --alone_count_;
    return;
  }
  leave_group(request);
  const auto lane = lanes_.find(request.priority);
  lane->second.queued.erase(request);
  lane->second.items -= left;
  items_ -= left;
  --requests_;
  drop_empty(lane);
}

}  // namespace service_streamer
