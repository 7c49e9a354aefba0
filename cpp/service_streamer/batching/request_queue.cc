#include "service_streamer/batching/request_queue.h"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

namespace service_streamer {

bool RequestQueue::has_room(const Request& request) const {
  if (!fits(request) || !tenant_has_room(request) || !weight_has_room(request)) return false;
  if (waiting_count_ == 0) return true;
  const auto lane = lanes_.find(request.priority);
  if (lane != lanes_.end()) {
    const Tenant* own = lane->second.tenants.find(request.tenant());
    if (own != nullptr && !own->waiting.empty()) return false;
  }
  const Request* first = first_waiting();
  if (first == nullptr) return true;
  if (first->priority != request.priority) return order_.before(request, *first);
  return lane->second.tenants.pass_of(request.tenant()) < first->account->pass;
}

bool RequestQueue::tenant_has_room(const Request& request) const {
  if (options_.max_items_per_tenant == 0) return true;
  std::size_t own = 0;
  for (const auto& [priority, lane] : lanes_) {
    if (priority < request.priority) break;
    const Tenant* tenant = lane.tenants.find(request.tenant());
    if (tenant != nullptr) own += tenant->items;
  }
  return own == 0 || own + request.size <= options_.max_items_per_tenant;
}

bool RequestQueue::weight_has_room(const Request& request) const {
  if (!weighs()) return true;
  double ahead = 0;
  for (const auto& [priority, lane] : lanes_) {
    if (priority < request.priority) break;
    ahead += lane.weight;
  }
  return ahead <= 0 || ahead + request.queued_weight <= options_.max_weight;
}

void RequestQueue::push(Request& request) {
  Lane& lane = prepare(request);
  lane.tenants.add(request);
  note_queued(lane, request);
}

void RequestQueue::push_waiting(Request& request) {
  prepare(request).tenants.wait(request);
  request.phase = Request::Phase::kWaiting;
  ++waiting_count_;
}

void RequestQueue::push_again(Request& request) {
  request.dispatched = 0;
  if (weighs()) request.queued_weight = request.weight_of(0, request.size);
  Lane& lane = prepare(request);
  lane.tenants.refund(request);
  lane.tenants.add(request);
  note_queued(lane, request);
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

void RequestQueue::set_limits(const BatchLimits& limits) {
  if (limits.items == options_.limits.items && limits.weight == options_.limits.weight) return;
  options_.limits = limits;
  if (grouped()) groups_->set_limits(limits);
}

Request* RequestQueue::admit() {
  Request* request = waiting_count_ > 0 ? first_waiting() : nullptr;
  if (request == nullptr || !fits(*request) || !weight_has_room(*request)) return nullptr;
  Lane& lane = lanes_.find(request->priority)->second;
  lane.tenants.admit(*request);
  --waiting_count_;
  note_queued(lane, *request);
  return request;
}

void RequestQueue::remove(Request& request) {
  if (request.phase == Request::Phase::kWaiting) {
    const auto lane = lanes_.find(request.priority);
    if (grouped()) groups_->release(request, 0);
    lane->second.tenants.remove(request);
    --waiting_count_;
    drop_empty(lane);
  } else if (request.phase == Request::Phase::kQueued) {
    unlink(request, lanes_.find(request.priority));
  }
}

Request& RequestQueue::front() const {
  const auto first = [](const Lane& lane) { return lane.tenants.first(&Tenant::queued); };
  Request* next = requests_ > 0 ? order_.first_of(lanes_, first) : alone_.first();
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
  const auto lane = lanes_.find(request.priority);
  if (!request.alone) lane->second.tenants.charge(request, count, !grouped());
  if (request.dispatched + count == request.size) {
    unlink(request, lane);
    request.dispatched = request.size;
    request.phase = Request::Phase::kDispatched;
  } else if (request.alone) {
    alone_items_ -= count;
    request.dispatched += count;
  } else {
    items_ -= count;
    lane->second.tenants.shrink(request, count);
    if (weighs()) {
      const double weight = request.weight_of(range.begin, range.begin + count);
      lane->second.weight -= weight;
      request.queued_weight -= weight;
    }
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
  for (const auto& [priority, lane] : lanes_) oldest = std::min(oldest, lane.tenants.oldest());
  return oldest;
}

std::size_t RequestQueue::items_before(const Request& request) const {
  const auto lane = lanes_.find(request.priority);
  if (lane == lanes_.end()) return items_;
  const Tenants& tenants = lane->second.tenants;
  return items_ - tenants.items() + tenants.items_before(request.tenant(), request.size);
}

double RequestQueue::weight_before(const Request& request) const {
  const auto lane = lanes_.find(request.priority);
  if (lane == lanes_.end() || lane->second.tenants.items() == 0) return weight();
  const Tenants& tenants = lane->second.tenants;
  const double share =
      static_cast<double>(tenants.items_before(request.tenant(), request.size)) / static_cast<double>(tenants.items());
  return weight() - lane->second.weight * (1 - std::min(share, 1.0));
}

double RequestQueue::weight() const {
  double weight = 0;
  for (const auto& [priority, lane] : lanes_) weight += lane.weight;
  return weight;
}

std::size_t RequestQueue::items_of(std::string_view tenant) const {
  std::size_t items = 0;
  for (const auto& [priority, lane] : lanes_) {
    if (const Tenant* found = lane.tenants.find(tenant)) items += found->items;
  }
  return items;
}

std::map<std::string, std::uint64_t> RequestQueue::largest_tenants(std::size_t most) const {
  std::map<std::string_view, std::uint64_t> all;
  for (const auto& [priority, lane] : lanes_) {
    lane.tenants.for_each_named([&](std::string_view name, std::size_t items) { all[name] += items; });
  }
  std::vector<std::pair<std::uint64_t, std::string_view>> largest;
  largest.reserve(all.size());
  for (const auto& [name, items] : all) largest.emplace_back(items, name);
  most = std::min(most, largest.size());
  std::ranges::partial_sort(largest, largest.begin() + static_cast<std::ptrdiff_t>(most), std::greater<>());
  std::map<std::string, std::uint64_t> found;
  for (std::size_t i = 0; i < most; ++i) found.emplace(largest[i].second, largest[i].first);
  return found;
}

int RequestQueue::top_priority() const {
  return top_lane()->first;
}

bool RequestQueue::expects_higher_priority(TimePoint now) const {
  const TimePoint lately = now - std::chrono::seconds(10);
  return std::any_of(lanes_.begin(), top_lane(),
                     [lately](const auto& lane) { return lane.second.last_arrival > lately; });
}

// True if the bound of all items allows the request, apart from what is in the waiting room.
bool RequestQueue::fits(const Request& request) const {
  std::size_t ahead = 0;
  for (const auto& [priority, lane] : lanes_) {
    if (priority < request.priority) break;
    ahead += lane.tenants.items();
  }
  return ahead == 0 || ahead + request.size <= options_.max_items;
}

RequestQueue::Lanes::const_iterator RequestQueue::top_lane() const {
  return std::ranges::find_if(lanes_, [](const auto& lane) { return lane.second.tenants.items() > 0; });
}

// The request that goes first of those in the waiting room that their tenant's bound allows.
Request* RequestQueue::first_waiting() const {
  const auto allowed = [this](const Request& request) { return tenant_has_room(request); };
  return order_.first_of(lanes_, [&](const Lane& lane) { return lane.tenants.first(&Tenant::waiting, allowed); });
}

// Allocates what the request needs to be queued later, and returns its lane.
RequestQueue::Lane& RequestQueue::prepare(Request& request) {
  Lane& lane = lanes_.try_emplace(request.priority, shares_).first->second;
  if (request.has_keys_or_weights() && !grouped() && !options_.ignores_traits) group_all();
  lane.tenants.prepare(request);
  if (grouped()) groups_->hold(request);
  return lane;
}

void RequestQueue::group_all() {
  auto groups = std::make_unique<RequestGroups>(options_.limits, order_);
  for (const auto& [priority, lane] : lanes_) {
    for (QueueList Tenant::* list : {&Tenant::queued, &Tenant::waiting}) {
      lane.tenants.for_each(list, [&](const Request& request) { groups->hold(request); });
    }
  }
  groups_ = std::move(groups);
  for (const auto& [priority, lane] : lanes_) {
    lane.tenants.for_each(&Tenant::queued, [this](Request& request) { groups_->enter(request); });
  }
}

// Counts a request that was added to the lane.
void RequestQueue::note_queued(Lane& lane, Request& request) {
  lane.last_arrival = std::max(lane.last_arrival, request.arrived);
  request.phase = Request::Phase::kQueued;
  request.run_end = request.size;
  items_ += request.size;
  ++requests_;
  if (weighs()) lane.weight += request.queued_weight;
  if (grouped()) groups_->enter(request);
}

void RequestQueue::drop_empty(Lanes::iterator lane) {
  constexpr std::size_t kKeptLanes = 8;  // keep a few empty lanes, because the same priorities come again
  if (lane->second.tenants.empty() && lanes_.size() > kKeptLanes) lanes_.erase(lane);
}

// Takes the request out of the queue, with its items that are not in a batch.
void RequestQueue::unlink(Request& request, Lanes::iterator lane) {
  const std::size_t left = request.size - request.dispatched;
  if (request.alone) {
    alone_.erase(request);
    alone_items_ -= left;
    --alone_count_;
    return;
  }
  if (grouped()) groups_->leave_all(request);
  lane->second.tenants.remove(request);
  items_ -= left;
  --requests_;
  if (weighs()) lane->second.weight -= request.queued_weight;
  if (lane->second.tenants.items() == 0) lane->second.weight = 0;  // not a rounding error
  drop_empty(lane);
}

}  // namespace service_streamer
