#pragma once

#include <Python.h>

#include <cstdint>
#include <initializer_list>
#include <memory>

#include "service_streamer/base/clock.h"
#include "service_streamer/batching/options.h"
#include "service_streamer/batching/request.h"

namespace service_streamer::bindings {

// Conversions of Python arguments. Each returns false, or nullptr, with an exception set that names the value received.

// The items of one request, from a list, tuple, array, tensor or other sequence with a length: a new reference to a
// tuple.
PyObject* items_from(PyObject* batch);
PyObject* item_list_from(PyObject* batch);  // as a new list

// Whether a negative timeout is an error, or time that is over, as in concurrent.futures.
enum class Negative { kIsWrong, kIsOver };

// The time in so many seconds; TimePoint::max() for None.
bool deadline_from(PyObject* timeout, TimePoint& deadline, Negative negative = Negative::kIsWrong);

bool priority_from(PyObject* value, int& priority);

// The traits of a request of `size` items, from (keys, weights, order) or None, and from a tenant, a str or None.
// `order` becomes a new reference, or stays nullptr. _base/grouping.py checks keys and weights for users; this refuses
// only what would break the core.
bool traits_from(PyObject* value, PyObject* tenant, std::uint32_t size, std::shared_ptr<const ItemTraits>& traits,
                 PyObject*& order);

// The shares of tenants from a dict; None leaves them equal. _base/options.py checks it for users.
bool shares_from(PyObject* value, TenantShares& shares);

// Batching options. _base/options.py checks them for users; this refuses only values that would break the core.
bool set_batching(EngineOptions& options, Py_ssize_t batch_size, double max_latency, const char* policy);

// The arguments of configure(). nullptr or None leaves a setting as it is; `slo` 0 removes the target.
struct GivenSettings {
  PyObject* batch_size = nullptr;
  PyObject* max_latency = nullptr;
  PyObject* policy = nullptr;
  PyObject* slo = nullptr;
};
bool change_from(const GivenSettings& settings, EngineChange& change);

// The index of `value` in `names`.
bool choose(const char* name, const char* value, std::initializer_list<const char*> names, int& index);

// `seconds` must be at least 0; more than a century counts as a century.
Duration duration_from(double seconds);

}  // namespace service_streamer::bindings
