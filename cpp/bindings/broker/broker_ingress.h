#pragma once

#include <Python.h>

#include "service_streamer/broker/broker_ingress.h"

namespace service_streamer::bindings {

extern PyTypeObject* broker_ingress_type;
bool make_broker_ingress_type(PyObject* module);

// The ingress of an object of this type; nullptr with StreamerClosed raised in a forked child.
ipc::BrokerIngress* ingress_of(PyObject* self);

}  // namespace service_streamer::bindings
