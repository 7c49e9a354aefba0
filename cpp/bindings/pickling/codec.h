#pragma once

#include <Python.h>

#include <memory>

#include "service_streamer/wire/payload.h"

// Python objects as pickles of protocol 5, with large buffers in shared memory, for other processes.
//
// All functions need the GIL. Pickling and unpickling run code of the objects, which may release the GIL, and in a
// greenlet may never return. So two encodings share nothing, and what they need is on the heap.

namespace service_streamer::bindings {

bool make_encoder_type();
bool make_decoder(PyObject* module);

// Pickles objects one after the other. Without a pool nothing goes into shared memory. For one thread; nullptr with an
// exception set. end_encoding() ends it.
struct Encoder;
Encoder* begin_encoding(std::shared_ptr<ipc::SharedPool> pool);
void end_encoding(Encoder* encoder);

// Adds a pickle for the object: bytes and blocks. False with what pickling raised, and nothing added.
bool encode(Encoder* encoder, PyObject* object);

// Moves what was encoded into `payload`; false with MemoryError set.
bool finish(Encoder* encoder, ipc::Payload& payload);

// The items of a request of this process; false with SerializationError set, which names the item.
bool encode_items(PyObject* items, ipc::Payload& payload, bool inline_items = false);

// Makes the object of a pickle and its blocks. Its large buffers are private, writable, and valid as long as it refers
// to them. nullptr with what unpickling raised. The bytes must stay valid during the call.
PyObject* decode(const ipc::Bytes& bytes, const ipc::BlockRef* blocks, std::size_t count);

// Appends items of a payload to a list; false with what unpickling raised.
bool decode_items(const ipc::Payload& payload, std::size_t first, std::size_t count, PyObject* items);

}  // namespace service_streamer::bindings
