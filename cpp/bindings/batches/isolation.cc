#include "bindings/batches/isolation.h"

#include <pybind11/pybind11.h>

namespace service_streamer::bindings {

namespace py = pybind11;

void make_isolation_type(PyObject* module) {
  py::class_<Isolation, std::shared_ptr<Isolation>>(
      py::reinterpret_borrow<py::object>(module), "Isolation",
      "Chooses which requests of a batch that raised run next, to find the guilty ones.")
      .def(
          "over", [](Isolation& self) { return self.over(Clock::now()); },
          "Whether the search has ended: the requests that are left are to be postponed.")
      .def("passed", &Isolation::passed, "Tells that the requests that were taken last have ended.")
      .def("failed", &Isolation::failed, py::arg("requests"), py::arg("items"), py::arg("out_of_memory"),
           py::pos_only(), "Tells that they raised. True: the one request is to fail; False: they go back.")
      .def_property_readonly(
          "lesson",
          [](const Isolation& self) {
            const MemoryLesson lesson = self.lesson();
            return py::make_tuple(lesson.failed, lesson.passed);
          },
          "The items of the smallest part that had too little memory, and of the largest that ran; 0: nothing is "
          "known.")
      .def_property_readonly("runs", &Isolation::runs, "How many groups were taken.");
}

PyObject* make_isolation(const std::shared_ptr<Isolation>& isolation) {
  try {
    return py::cast(isolation).release().ptr();
  } catch (py::error_already_set& error) {
    error.restore();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

Isolation* isolation_of(PyObject* object) {
  try {
    return py::handle(object).cast<Isolation*>();
  } catch (const py::cast_error&) {
    PyErr_Format(PyExc_TypeError, "an Isolation is needed, not %.200s", Py_TYPE(object)->tp_name);
  }
  return nullptr;
}

}  // namespace service_streamer::bindings
