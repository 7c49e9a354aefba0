#include "bindings/engine/engine_arguments.h"

#include <algorithm>
#include <cstddef>

#include "bindings/futures/future.h"
#include "bindings/python/arguments.h"

namespace service_streamer::bindings {

bool engine_arguments_from(PyObject* args, PyObject* kwargs, EngineArguments& arguments) {
  PyObject* tenants = Py_None;
  Py_ssize_t batch_size = 0, max_queue = 0, max_queue_per_tenant = 0;
  double max_latency = -1, ageing = 0, max_weight = 0, max_queue_weight = 0, slo = 0;
  const char *policy = nullptr, *overflow = nullptr, *output = nullptr;
  int workers = 0, forwards = 0, padded = 0, buckets = 0, remote = 0, inline_items = 0, copy_outputs = 1;
  int overflow_kind, output_kind;
  static const char* names[] = {"batch_size",
                                "max_latency",
                                "policy",
                                "ageing",
                                "workers",
                                "max_queue",
                                "overflow",
                                "output",
                                "future_type",
                                "start",
                                "start_timer",
                                "group",
                                "forwards",
                                "max_weight",
                                "padded",
                                "remote",
                                "inline",
                                "model",
                                "slo",
                                "buckets",
                                "tenants",
                                "max_queue_per_tenant",
                                "copy_outputs",
                                "ended_early",
                                "max_queue_weight",
                                nullptr};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$ndsdinssO!OOOpdpppOdiOnpOd", const_cast<char**>(names), &batch_size,
                                   &max_latency, &policy, &ageing, &workers, &max_queue, &overflow, &output,
                                   &PyType_Type, &arguments.future_type, &arguments.start, &arguments.start_timer,
                                   &arguments.group, &forwards, &max_weight, &padded, &remote, &inline_items,
                                   &arguments.model, &slo, &buckets, &tenants, &max_queue_per_tenant, &copy_outputs,
                                   &arguments.ended_early, &max_queue_weight)) {
    return false;
  }
  if (policy == nullptr || overflow == nullptr || output == nullptr || arguments.future_type == nullptr ||
      arguments.start == nullptr || arguments.start_timer == nullptr) {
    PyErr_SetString(PyExc_TypeError, "all arguments up to start_timer except ageing are required");
    return false;
  }
  EngineOptions& options = arguments.options;
  if (!set_batching(options, batch_size, max_latency, policy) ||
      !choose("overflow", overflow, {"block", "reject"}, overflow_kind) ||
      !choose("output", output, {"items", "batch"}, output_kind) || !shares_from(tenants, arguments.shares)) {
    return false;
  }
  if (!PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(arguments.future_type), future_base_type)) {
    PyErr_Format(PyExc_TypeError, "future_type must be a subclass of FutureBase, got %R", arguments.future_type);
    return false;
  }
  if (ageing > 0) options.ageing = duration_from(ageing);
  options.ignores_traits = forwards != 0;
  if (max_weight > 0) options.max_weight = max_weight;
  if (max_queue_weight > 0) options.max_queue_weight = max_queue_weight;
  options.padded = padded != 0;
  options.buckets = static_cast<std::size_t>(buckets);
  options.workers = workers;
  options.slo = duration_from(slo);
  options.max_queue = static_cast<std::size_t>(std::max<Py_ssize_t>(max_queue, 0));
  options.max_queue_per_tenant = static_cast<std::size_t>(std::max<Py_ssize_t>(max_queue_per_tenant, 0));
  options.overflow = overflow_kind == 0 ? Overflow::kBlock : Overflow::kReject;
  arguments.remote = remote != 0;
  arguments.inline_items = inline_items != 0;
  arguments.output_batch = output_kind == 1;
  arguments.copy_outputs = copy_outputs != 0;
  return true;
}

}  // namespace service_streamer::bindings
