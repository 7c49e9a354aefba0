#include "service_streamer/batching/request_queue.h"

#include <algorithm>

namespace service_streamer {

bool RequestQueue::has_room(const Request& request) const {
  return waiting_count_ == 0 && (items_ == 0 || items_ + request.size <= max_items_);
}

void RequestQueue::push(Request& request) {
  lanes_[request.priority].push_back(request);
  request.phase = Request::Phase::kQueued;
  items_ += request.size;
  ++requests_;
}

void RequestQueue::push_waiting(Request& request) {
  waiting_.push_back(request);
  request.phase = Request::Phase::kWaiting;
  ++waiting_count_;
}

void RequestQueue::push_again(Request& request) {
  QueueList& lane = lanes_[request.priority];
  Request* later = lane.first();
  while (later != nullptr && later->arrived <= request.arrived) later = later->next;
  lane.insert(request, later);
  request.phase = Request::Phase::kQueued;
  request.dispatched = 0;
  items_ += request.size;
  ++requests_;
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
  Request* request = waiting_.first();
  if (request == nullptr || (items_ > 0 && items_ + request->size > max_items_)) return nullptr;
  waiting_.erase(*request);
  --waiting_count_;
  push(*request);
  return request;
}

void RequestQueue::remove(Request& request) {
  if (request.phase == Request::Phase::kWaiting) {
    waiting_.erase(request);
    --waiting_count_;
  } else if (request.phase == Request::Phase::kQueued) {
    (request.alone ? alone_items_ : items_) -= request.size - request.dispatched;
    unlink(request);
  }
}

Request& RequestQueue::front() {
  return requests_ > 0 ? *first_lane()->second.first() : *alone_.first();
}

RequestRange RequestQueue::take(std::size_t limit) {
  Request& request = front();
  const std::uint32_t left = request.size - request.dispatched;
  const auto count = static_cast<std::uint32_t>(std::min<std::size_t>(left, limit));
  const RequestRange range{.request = &request, .begin = request.dispatched, .count = count};
  request.dispatched += count;
  (request.alone ? alone_items_ : items_) -= count;
  if (count == left) {
    unlink(request);
    request.phase = Request::Phase::kDispatched;
  }
  return range;
}

TimePoint RequestQueue::oldest() const {
  TimePoint oldest = TimePoint::max();
  for (const auto& [priority, lane] : lanes_) {
    if (!lane.empty()) oldest = std::min(oldest, lane.first()->arrived);
  }
  return oldest;
}

int RequestQueue::top_priority() const {
  return first_lane()->first;
}

RequestQueue::Lanes::const_iterator RequestQueue::first_lane() const {
  return std::find_if(lanes_.begin(), lanes_.end(), [](const auto& lane) { return !lane.second.empty(); });
}

void RequestQueue::unlink(Request& request) {
  if (request.alone) {
    alone_.erase(request);
    --alone_count_;
    return;
  }
  constexpr std::size_t kKeptLanes = 8;  // keep a few empty lanes, because the same priorities come again
  const auto lane = lanes_.find(request.priority);
  lane->second.erase(request);
  if (lane->second.empty() && lanes_.size() > kKeptLanes) lanes_.erase(lane);
  --requests_;
}

}  // namespace service_streamer
