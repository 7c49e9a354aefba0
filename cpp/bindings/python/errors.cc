#include "bindings/python/errors.h"

#include <cstdarg>
#include <cstdio>
#include <new>
#include <stdexcept>
#include <system_error>

namespace service_streamer::bindings {

PyObject* raise_error(const char* name, PyObject* arguments) {
  if (arguments == nullptr) return nullptr;
  PyObject* module = PyImport_ImportModule("service_streamer._errors");
  PyObject* type = module != nullptr ? PyObject_GetAttrString(module, name) : nullptr;
  PyObject* error = type != nullptr ? PyObject_Call(type, arguments, nullptr) : nullptr;
  if (error != nullptr) PyErr_SetObject(type, error);
  Py_XDECREF(error);
  Py_XDECREF(type);
  Py_XDECREF(module);
  Py_DECREF(arguments);
  return nullptr;
}

PyObject* raise_message(const char* name, const char* format, ...) {
  va_list values;
  va_start(values, format);
  PyObject* message = PyUnicode_FromFormatV(format, values);
  va_end(values);
  return raise_error(name, message != nullptr ? Py_BuildValue("(N)", message) : nullptr);
}

PyObject* raise_mistake(PyObject* type, const char* anchor, const char* format, ...) {
  va_list values;
  va_start(values, format);
  PyObject* text = PyUnicode_FromFormatV(format, values);
  va_end(values);
  PyObject* entry = PyUnicode_FromString(anchor);
  PyObject* message = nullptr;
  if (text != nullptr && entry != nullptr) message = call_helper("service_streamer._messages", "see", text, entry);
  if (message != nullptr) PyErr_SetObject(type, message);
  Py_XDECREF(message);
  Py_XDECREF(entry);
  Py_XDECREF(text);
  return nullptr;
}

PyObject* raise_closed() {
  PyObject* message = call_helper("service_streamer._messages", "closed", nullptr);
  return raise_error("StreamerClosed", message != nullptr ? Py_BuildValue("(N)", message) : nullptr);
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
  if (!init) return raise_error("WorkerLost", Py_BuildValue("(N)", message));
  PyObject* error = call_helper("service_streamer._processes.init_failure", "error_of", message);
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

PyObject* call_helper(const char* module_name, const char* function_name, PyObject* first, PyObject* second) {
  PyObject* module = PyImport_ImportModule(module_name);
  if (module == nullptr) return nullptr;
  PyObject* function = PyObject_GetAttrString(module, function_name);
  Py_DECREF(module);
  if (function == nullptr) return nullptr;
  PyObject* result = PyObject_CallFunctionObjArgs(function, first, second, nullptr);
  Py_DECREF(function);
  return result;
}

}  // namespace service_streamer::bindings
