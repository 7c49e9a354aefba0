#pragma once

#include <Python.h>

#include <memory>

#include "service_streamer/wire/payload.h"

// Python objects on their way to another process and back: pickles of protocol 5, whose large buffers lie in shared memory.
//
// What runs the code of pickled objects may give up the GIL, and in a greenlet not come back: nothing here is shared between
// two encodings, and what they need lies on the heap.

namespace service_streamer::bindings {

bool make_encoder_type();
bool make_decoder(PyObject* module);

// Pickles objects one after the other, without a pool all of them inline. One thread's; nullptr with an exception set, and to be
// ended by end_encoding().
struct Encoder;
Encoder* begin_encoding(std::shared_ptr<ipc::SharedPool> pool);
void end_encoding(Encoder* encoder);

// Adds a pickle of its own, bytes and blocks, for the object. False: what pickling it raised is set, and nothing was added.
bool encode(Encoder* encoder, PyObject* object);

// Moves what was encoded into `payload`: false with MemoryError set.
bool finish(Encoder* encoder, ipc::Payload& payload);

// The items of a request of this process; false with SerializationError set, which names the item.
bool encode_items(PyObject* items, ipc::Payload& payload, bool inline_items = false);

// Pickle and blocks back as an object: its large buffers are private to it, writable, and valid as long as it keeps them.
// nullptr with what unpickling raised. The bytes must stay where they are meanwhile.
PyObject* decode(const ipc::Bytes& bytes, const ipc::BlockRef* blocks, std::size_t count);

// Appends items of a payload to a list; false with what unpickling raised.
bool decode_items(const ipc::Payload& payload, std::size_t first, std::size_t count, PyObject* items);

}  // namespace service_streamer::bindings
