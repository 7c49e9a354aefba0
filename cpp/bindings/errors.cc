#include "bindings/errors.h"

#include <cstdarg>

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
