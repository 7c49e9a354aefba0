#include "service_streamer/batching/request_queue.h"

#include <algorithm>
#include <cassert>
#include <memory>
#include <utility>

namespace service_streamer {
bool RequestQueue::has_room(const Request& request) const {
  const Request* first = waiting_count_ > 0 ? order_.first_of(lanes_, &Lane::waiting) : nullptr;
  return (first == nullptr || order_.before(request, *first)) && fits(request);
}

void RequestQueue::push(Request& request) {
  add(prepare(request), request, nullptr);
}

void RequestQueue::push_waiting(Request& request) {
  prepare(request).waiting.push_back(request);
  request.phase = Request::Phase::kWaiting;
  ++waiting_count_;
}

void RequestQueue::push_again(Request& request) {
  request.dispatched = 0;
  Lane& lane = prepare(request);
  Request* later = lane.queued.first();
  while (later != nullptr && later->arrived <= request.arrived) later = later->next;
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
  if (grouped()) groups_->set_batch_size(items);
}

Request* RequestQueue::admit() {
  if (waiting_count_ == 0) return nullptr;
  Request& request = *order_.first_of(lanes_, &Lane::waiting);
  if (!fits(request)) return nullptr;
  Lane& lane = lanes_.find(request.priority)->second;
  lane.waiting.erase(request);
  --waiting_count_;
  add(lane, request, nullptr);
  return &request;
}

void RequestQueue::remove(Request& request) {
  if (request.phase == Request::Phase::kWaiting) {
    const auto lane = lanes_.find(request.priority);
    lane->second.waiting.erase(request);
    --waiting_count_;
    if (grouped()) groups_->release(request, 0);
    drop_empty(lane);
  } else if (request.phase == Request::Phase::kQueued) {
    unlink(request);
  }
}

Request& RequestQueue::front() const {
  Request* next = requests_ > 0 ? order_.first_of(lanes_, &Lane::queued) : alone_.first();
  assert(next != nullptr);
  return *next;
}

RequestQueue::Company RequestQueue::company_of(const Request& request) {
  if (request.alone) return {.items = request.size, .requests = 1};
  if (grouped()) return groups_->company_of(request);
  return {.items = items_, .requests = requests_, .full = items_ >= options_.limits.items};
}

Request* RequestQueue::next_alike(std::uint64_t key) const {
  if (grouped()) return groups_->first(key);
  return requests_ > 0 ? &front() : nullptr;
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
    const bool ends_run = request.dispatched + count == request.run_end;  // only if the queue is grouped
    if (ends_run) {
      groups_->leave(request);
    } else if (grouped()) {
      groups_->shrink(request, count);
    }
    request.dispatched += count;
    if (ends_run) groups_->enter(request);
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

// Allocates what the request needs to be queued later, and returns its lane.
RequestQueue::Lane& RequestQueue::prepare(const Request& request) {
  Lane& lane = lanes_[request.priority];
  if (request.traits != nullptr && !grouped() && !options_.ignores_traits) group_all();
  if (grouped()) groups_->hold(request);
  return lane;
}

void RequestQueue::group_all() {
  auto groups = std::make_unique<RequestGroups>(options_.limits, order_);
  const auto for_each = [](const QueueList& list, auto call) {
    for (Request* request = list.first(); request != nullptr; request = request->next) call(*request);
  };
  for (const auto& [priority, lane] : lanes_) {
    for (const QueueList* list : {&lane.queued, &lane.waiting}) {
      for_each(*list, [&](const Request& request) { groups->hold(request); });
    }
  }
  groups_ = std::move(groups);
  for (const auto& [priority, lane] : lanes_) {
    for_each(lane.queued, [this](Request& request) { groups_->enter(request); });
  }
}

// Links a request that is prepared.
void RequestQueue::add(Lane& lane, Request& request, Request* before) {
  lane.queued.insert(request, before);
  lane.items += request.size;
  lane.last_arrival = std::max(lane.last_arrival, request.arrived);
  request.phase = Request::Phase::kQueued;
  request.run_end = request.size;
  items_ += request.size;
  ++requests_;
  if (grouped()) groups_->enter(request);
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
  if (grouped()) groups_->leave_all(request);
  const auto lane = lanes_.find(request.priority);
  lane->second.queued.erase(request);
  lane->second.items -= left;
  items_ -= left;
  --requests_;
  drop_empty(lane);
}

}  // namespace service_streamer
