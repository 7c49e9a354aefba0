#include "bindings/mailbox.h"

#include <cerrno>
#include <memory>
#include <system_error>

#include "service_streamer/batching/mailbox.h"

namespace service_streamer::bindings {
namespace {

namespace py = pybind11;

// The messages of a Mailbox are Python objects here, each with a reference of its own.
class PythonMailbox : public Mailbox {
 public:
  ~PythonMailbox() {
    for (void* message : drain()) Py_DECREF(static_cast<PyObject*>(message));
  }

  py::list take() {
    py::list tokens;
    for (void* message : drain()) tokens.append(py::reinterpret_steal<py::object>(static_cast<PyObject*>(message)));
    return tokens;
  }
};

std::unique_ptr<PythonMailbox> open() {
  try {
    return std::make_unique<PythonMailbox>();
  } catch (const std::system_error& error) {
    errno = error.code().value();
    PyErr_SetFromErrno(PyExc_OSError);
    throw py::error_already_set();
  }
}

}  // namespace

void bind_mailbox(py::module_& module) {
  py::class_<PythonMailbox>(
      module, "Mailbox",
      "Finished requests on their way to an event loop.\n\n"
      "The loop watches fileno(), an eventfd that becomes readable once per batch of answers, and\n"
      "then calls drain(). Raises OSError when the process has no descriptor left.")
      .def(py::init(&open))
      .def("fileno", &PythonMailbox::fd, "The descriptor to watch for reading.")
      .def("drain", &PythonMailbox::take, "The tokens of all requests that ended since the last call, in order.");
}

bool check_mailbox(PyObject* object) {
  if (py::isinstance<PythonMailbox>(object)) return true;
  PyErr_Format(PyExc_TypeError, "mailbox must be a Mailbox, got %.200s", Py_TYPE(object)->tp_name);
  return false;
}

void post(PyObject* mailbox, PyObject* token) {
  py::handle(mailbox).cast<PythonMailbox&>().post(Py_NewRef(token));
}

}  // namespace service_streamer::bindings
