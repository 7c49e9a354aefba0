#include "bindings/python/errors.h"

#include <cstdarg>
#include <cstdio>
#include <new>
#include <stdexcept>
#include <system_error>

namespace service_streamer::bindings {

PyObject* raise_error(const PythonObject& type, PyObject* arguments) {
  if (arguments == nullptr) return nullptr;
  PyObject* error = type.get() != nullptr ? PyObject_Call(type.get(), arguments, nullptr) : nullptr;
  if (error != nullptr) PyErr_SetObject(type.get(), error);
  Py_XDECREF(error);
  Py_DECREF(arguments);
  return nullptr;
}

PyObject* raise_message(const PythonObject& type, const char* format, ...) {
  va_list values;
  va_start(values, format);
  PyObject* message = PyUnicode_FromFormatV(format, values);
  va_end(values);
  return raise_error(type, message != nullptr ? Py_BuildValue("(N)", message) : nullptr);
}

PyObject* raise_mistake(PyObject* type, const char* anchor, const char* format, ...) {
  va_list values;
  va_start(values, format);
  PyObject* text = PyUnicode_FromFormatV(format, values);
  va_end(values);
  PyObject* entry = PyUnicode_FromString(anchor);
  PyObject* message = nullptr;
  if (text != nullptr && entry != nullptr) message = python::see(text, entry);
  if (message != nullptr) PyErr_SetObject(type, message);
  Py_XDECREF(message);
  Py_XDECREF(entry);
  Py_XDECREF(text);
  return nullptr;
}

PyObject* raise_closed() {
  PyObject* message = python::closed();
  return raise_error(python::streamer_closed, message != nullptr ? Py_BuildValue("(N)", message) : nullptr);
}

PyObject* take_exception(bool with_traceback) {
  PyObject *type, *error, *traceback;
  PyErr_Fetch(&type, &error, &traceback);
  PyErr_NormalizeException(&type, &error, &traceback);
  if (traceback != nullptr)
    PyException_SetTraceback(error, with_traceback ? traceback : Py_None);  // it has it since 3.12
  Py_XDECREF(type);
  Py_XDECREF(traceback);
  return error;
}

void raise_unknown_tenant(PyObject* name) {
  PyErr_Format(PyExc_ValueError, "tenant %R is not in tenants, which has no \"*\"", name);
}

PyObject* raise_lost(std::string_view note) {
  constexpr std::string_view kInit = "init: ";
  constexpr std::string_view kTenant = "tenant: ";
  const bool init = note.starts_with(kInit);
  const bool tenant = note.starts_with(kTenant);
  if (init || tenant) note.remove_prefix(init ? kInit.size() : kTenant.size());
  PyObject* message = PyUnicode_DecodeUTF8(note.data(), static_cast<Py_ssize_t>(note.size()), "replace");
  if (message == nullptr) return nullptr;
  if (tenant) {
    raise_unknown_tenant(message);
    Py_DECREF(message);
    return nullptr;
  }
  if (!init) return raise_error(python::worker_lost, Py_BuildValue("(N)", message));
  PyObject* error = python::init_error(message);
  if (error != nullptr) PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error)), error);
  Py_XDECREF(error);
  Py_DECREF(message);
  return nullptr;
}

void CaughtError::note(const std::exception& error) {
  kind_ = Kind::kOther;
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) kind_ = Kind::kMemory;
  if (dynamic_cast<const std::invalid_argument*>(&error) != nullptr) kind_ = Kind::kValue;
  if (const auto* system = dynamic_cast<const std::system_error*>(&error)) {
    kind_ = Kind::kSystem;
    code_ = system->code().value();
  }
  std::snprintf(text_, sizeof text_, "%s", error.what());
}

bool CaughtError::raise() const {
  switch (kind_) {
    case Kind::kNone:
      return false;
    case Kind::kMemory:
      PyErr_NoMemory();
      break;
    case Kind::kSystem:
      if (PyObject* arguments = Py_BuildValue("(is)", code_, text_)) {
        PyErr_SetObject(PyExc_OSError, arguments);
        Py_DECREF(arguments);
      }
      break;
    case Kind::kValue:
      PyErr_SetString(PyExc_ValueError, text_);
      break;
    case Kind::kOther:
      PyErr_SetString(PyExc_RuntimeError, text_);
      break;
  }
  return true;
}

PyObject* none_or_raise(const CaughtError& failure) {
  if (failure.raise()) return nullptr;
  Py_RETURN_NONE;
}

}  // namespace service_streamer::bindings
