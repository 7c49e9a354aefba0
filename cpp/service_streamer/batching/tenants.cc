#include "service_streamer/batching/tenants.h"

#include <cmath>

namespace service_streamer {
namespace {

constexpr std::size_t kKeptIdle = 1024;  // idle tenants that have got more than others and are remembered

}  // namespace

std::optional<double> TenantShares::of(std::string_view tenant) const {
  if (const auto found = named.find(tenant); found != named.end()) return found->second;
  return tenant.empty() ? others.value_or(1) : others;
}

void Tenants::prepare(Request& request) {
  if (active_.size() == active_.capacity()) active_.reserve(std::max<std::size_t>(2 * active_.size(), 1));
  const std::string_view name = request.tenant();
  request.account = name.empty() ? &common_ : &named(name);
}

Tenant& Tenants::named(std::string_view name) {
  if (const auto found = named_.find(name); found != named_.end()) return found->second;
  if (named_.size() >= forget_at_) forget_idle();
  const double price = 1 / shares_.of(name).value_or(1);
  return named_.try_emplace(std::string(name), Tenant{.price = price}).first->second;
}

void Tenants::add(Request& request) {
  Tenant& tenant = *request.account;
  enter(tenant);
  Request* later = nullptr;
  if (!tenant.queued.empty() && tenant.queued.last()->arrived > request.arrived) {
    later = tenant.queued.first();
    while (later->arrived <= request.arrived) later = later->next;
  }
  tenant.queued.insert(request, later);
  tenant.items += request.size;
  items_ += request.size;
}

void Tenants::wait(Request& request) {
  enter(*request.account);
  request.account->waiting.push_back(request);
}

void Tenants::admit(Request& request) {
  Tenant& tenant = *request.account;
  tenant.waiting.erase(request);
  add(request);
  --tenant.requests;
}

void Tenants::remove(Request& request) {
  Tenant& tenant = *request.account;
  if (request.phase == Request::Phase::kWaiting) {
    tenant.waiting.erase(request);
  } else {
    const std::size_t left = request.size - request.dispatched;
    tenant.queued.erase(request);
    tenant.items -= left;
    items_ -= left;
  }
  leave(tenant);
}

void Tenants::charge(const Request& request, std::size_t items, bool is_first) {
  Tenant& tenant = *request.account;
  passed_ = std::max(passed_, is_first ? tenant.pass : first(&Tenant::queued)->account->pass);
  tenant.pass += static_cast<double>(items) * tenant.price;
  furthest_ = std::max(furthest_, tenant.pass);
}

void Tenants::refund(const Request& request) {
  request.account->pass -= static_cast<double>(request.size) * request.account->price;
}

void Tenants::shrink(const Request& request, std::size_t items) {
  request.account->items -= items;
  items_ -= items;
}

TimePoint Tenants::oldest() const {
  TimePoint oldest = TimePoint::max();
  for (const Tenant* tenant : active_) {
    if (!tenant->queued.empty()) oldest = std::min(oldest, tenant->queued.first()->arrived);
  }
  return oldest;
}

const Tenant* Tenants::find(std::string_view name) const {
  if (name.empty()) return &common_;
  const auto found = named_.find(name);
  return found != named_.end() ? &found->second : nullptr;
}

double Tenants::pass_of(std::string_view name) const {
  const Tenant* tenant = find(name);
  if (tenant == nullptr) return passed_;
  return tenant->requests > 0 ? tenant->pass : std::max(tenant->pass, passed_);
}

std::size_t Tenants::items_before(std::string_view name, std::size_t size) const {
  const Tenant* own = find(name);
  const std::size_t own_items = own != nullptr ? own->items : 0;
  const double end = pass_of(name) + static_cast<double>(own_items + size) / shares_.of(name).value_or(1);
  std::size_t before = own_items;
  for (const Tenant* tenant : active_) {
    if (tenant == own) continue;
    const double ahead = std::ceil(std::max(end - tenant->pass, 0.0) / tenant->price);
    before += ahead < static_cast<double>(tenant->items) ? static_cast<std::size_t>(ahead) : tenant->items;
  }
  return before;
}

void Tenants::enter(Tenant& tenant) {
  if (tenant.requests++ > 0) return;
  tenant.pass = std::max(tenant.pass, passed_);
  active_.push_back(&tenant);
}

void Tenants::leave(Tenant& tenant) {
  if (--tenant.requests > 0) return;
  *std::ranges::find(active_, &tenant) = active_.back();
  active_.pop_back();
  if (active_.empty()) passed_ = furthest_;
}

// A tenant that is not ahead needs no memory: it begins with the pass of a new one.
void Tenants::forget_idle() {
  std::erase_if(named_, [this](const auto& one) { return one.second.requests == 0 && one.second.pass <= passed_; });
  if (named_.size() > active_.size() + kKeptIdle) {
    std::erase_if(named_, [](const auto& one) { return one.second.requests == 0; });
  }
  forget_at_ = std::max<std::size_t>(2 * named_.size(), 64);
}

}  // namespace service_streamer
