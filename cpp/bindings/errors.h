#pragma once

#include <Python.h>

namespace service_streamer::bindings {

// Sets the exception `name` of service_streamer._errors, made from a tuple of constructor arguments (stolen; nullptr: an
// exception is set already). Always returns nullptr, for `return raise(...)`.
PyObject* raise_error(const char* name, PyObject* arguments);

// The same with one message argument, formatted as by PyUnicode_FromFormat.
PyObject* raise_message(const char* name, const char* format, ...);

// Calls service_streamer.<module>.<function>(first, second?); a new reference or nullptr. For what is rare.
PyObject* call_helper(const char* module, const char* function, PyObject* first, PyObject* second = nullptr);

}  // namespace service_streamer::bindings
