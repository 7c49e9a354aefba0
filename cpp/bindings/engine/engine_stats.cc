#include "bindings/engine/engine_stats.h"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "service_streamer/batching/stats_fields.h"

namespace service_streamer::bindings {
namespace {

namespace py = pybind11;

struct DictWriter {
  template <typename T>
  void operator()(const char* name, const T& value) {
    if constexpr (requires(DictWriter nested) { describe(value, nested); }) {
      DictWriter nested;
      describe(value, nested);
      dict[name] = nested.dict;
    } else {
      dict[name] = value;
    }
  }
  template <typename T>
  void operator()(const char* name, const std::map<std::string, T>& objects)
    requires requires(const T& object, DictWriter nested) { describe(object, nested); }
  {
    py::dict all;
    for (const auto& [key, object] : objects) {
      DictWriter nested;
      describe(object, nested);
      all[py::str(key)] = nested.dict;
    }
    dict[name] = all;
  }
  void operator()(const char* name, Duration duration) { dict[name] = seconds(duration); }

  py::dict dict;
};

}  // namespace

PyObject* stats_dict(const Engine& engine) {
  try {
    DictWriter stats;
    describe(engine, stats);
    return stats.dict.release().ptr();
  } catch (py::error_already_set& error) {
    error.restore();
    return nullptr;
  }
}

}  // namespace service_streamer::bindings
