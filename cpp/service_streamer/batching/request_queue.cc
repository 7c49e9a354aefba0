#include "service_streamer/batching/request_queue.h"

#include <algorithm>

namespace service_streamer {
namespace {

// When a request would have arrived to have its turn in the order of arrival. Durations may be large, so it is a
// floating-point number.
double virtual_arrival(const Request& request, Duration ageing) {
  using Seconds = std::chrono::duration<double>;
  return Seconds(request.arrived.time_since_epoch()).count() - request.priority * Seconds(ageing).count();
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
  request.phase = Request::Phase::kQueued;
  request.dispatched = 0;
  alone_items_ += request.size;
  ++alone_count_;
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

RequestRange RequestQueue::take(std::size_t limit) {
  Request& request = front();
  const std::uint32_t left = request.size - request.dispatched;
  const auto count = static_cast<std::uint32_t>(std::min<std::size_t>(left, limit));
  const RequestRange range{.request = &request, .begin = request.dispatched, .count = count};
  if (count == left) {
    unlink(request);
    request.phase = Request::Phase::kDispatched;
  } else if (request.alone) {
    alone_items_ -= count;
  } else {
    items_ -= count;
    lanes_.find(request.priority)->second.items -= count;
  }
  request.dispatched += count;
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
  constexpr Duration kLately = std::chrono::seconds(10);
  return std::any_of(lanes_.begin(), top_lane(),
                     [now](const auto& lane) { return lane.second.last_arrival > now - kLately; });
}

// True if the bound allows the request, apart from what is in the waiting room.
bool RequestQueue::fits(const Request& request) const {
  std::size_t ahead = 0;
  for (const auto& [priority, lane] : lanes_) {
    if (priority < request.priority) break;
    ahead += lane.items;
  }
  return ahead == 0 || ahead + request.size <= max_items_;
}

RequestQueue::Lanes::const_iterator RequestQueue::top_lane() const {
  return std::ranges::find_if(lanes_, [](const auto& lane) { return !lane.second.queued.empty(); });
}

// The lane of the request that goes next.
RequestQueue::Lanes::const_iterator RequestQueue::next_lane() const {
  auto next = top_lane();
  if (ageing_ == Duration::max()) return next;
  for (auto lane = next; lane != lanes_.end(); ++lane) {
    if (lane->second.queued.empty()) continue;
    const Request& request = *lane->second.queued.first();
    if (virtual_arrival(request, ageing_) < virtual_arrival(*next->second.queued.first(), ageing_)) next = lane;
  }
  return next;
}

void RequestQueue::add(Lane& lane, Request& request, Request* before) {
  lane.queued.insert(request, before);
  lane.items += request.size;
  lane.last_arrival = std::max(lane.last_arrival, request.arrived);
  request.phase = Request::Phase::kQueued;
  items_ += request.size;
  ++requests_;
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
  const auto lane = lanes_.find(request.priority);
  lane->second.queued.erase(request);
  lane->second.items -= left;
  items_ -= left;
  --requests_;
  drop_empty(lane);
}

}  // namespace service_streamer
