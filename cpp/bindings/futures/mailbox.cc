#include "bindings/futures/mailbox.h"

#include <utility>
#include <vector>

#include "bindings/futures/future.h"
#include "bindings/futures/greenlets.h"
#include "bindings/python/deferred_delete.h"
#include "bindings/python/errors.h"
#include "bindings/python/free_threading.h"
#include "service_streamer/base/mutex.h"

namespace service_streamer::bindings {
namespace {

struct MailboxObject {
  PyObject_HEAD
  std::shared_ptr<Mailbox> mailbox;  // none once closed
  std::uint32_t fork_generation;
};

PyTypeObject* mailbox_type = nullptr;

MailboxObject* self_of(PyObject* self) {
  return reinterpret_cast<MailboxObject*>(self);
}

// Releases what was not read. Its last user may be a thread without the GIL.
class ObjectMailbox final : public Mailbox, public DeferredDelete {
 public:
  ObjectMailbox() = default;
  ~ObjectMailbox() override {
    Messages messages = drain();
    while (void* message = messages.pop()) Py_DECREF(static_cast<PyObject*>(message));
  }
  ObjectMailbox(const ObjectMailbox&) = delete;
  ObjectMailbox& operator=(const ObjectMailbox&) = delete;
};

// --- the object ---

PyObject* mailbox_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {nullptr};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "", const_cast<char**>(names))) return nullptr;
  PyObject* self = type->tp_alloc(type, 0);
  if (self == nullptr) return nullptr;
  new (&self_of(self)->mailbox) std::shared_ptr<Mailbox>;
  self_of(self)->fork_generation = fork_generation();
  const CaughtError failure = attempt([&] { self_of(self)->mailbox = make_mailbox(); });
  if (failure.raise()) Py_CLEAR(self);
  return self;
}

Mailbox::Messages drain(PyObject* self) {
  const std::shared_ptr<Mailbox> mailbox = open_mailbox(self);
  return mailbox != nullptr ? mailbox->drain() : Mailbox::Messages(nullptr, 0);
}

PyObject* mailbox_fileno(PyObject* self, PyObject*) {
  const Locked lock(self);
  const Mailbox* mailbox = self_of(self)->mailbox.get();
  return PyLong_FromLong(mailbox != nullptr ? mailbox->fd() : -1);
}

PyObject* mailbox_drain(PyObject* self, PyObject*) {
  Mailbox::Messages messages = drain(self);
  PyObject* tokens = PyList_New(static_cast<Py_ssize_t>(messages.size()));
  Py_ssize_t next = 0;
  while (void* message = messages.pop()) {
    if (tokens != nullptr) {
      PyList_SET_ITEM(tokens, next++, static_cast<PyObject*>(message));
    } else {
      Py_DECREF(static_cast<PyObject*>(message));
    }
  }
  return tokens;
}

PyObject* mailbox_resume(PyObject* self, PyObject*) {
  Mailbox::Messages messages = drain(self);
  while (void* message = messages.pop()) {
    PyObject* token = static_cast<PyObject*>(message);
    resume(token);
    Py_DECREF(token);
  }
  Py_RETURN_NONE;
}

PyObject* mailbox_close(PyObject* self, PyObject*) {
  std::shared_ptr<Mailbox> mailbox;
  {
    const Locked lock(self);
    mailbox.swap(self_of(self)->mailbox);
  }
  if (mailbox == nullptr) Py_RETURN_NONE;
  if (self_of(self)->fork_generation != fork_generation()) {
    // The parent's: another thread may have held its lock at the fork, so only the child's copy of the descriptor is
    // closed.
    mailbox->abandon();
    static Mutex mutex;
    static auto* parents = new std::vector<std::shared_ptr<Mailbox>>;
    const MutexLock lock(mutex);
    parents->push_back(std::move(mailbox));
    Py_RETURN_NONE;
  }
  Mailbox::Messages messages = mailbox->drain();
  mailbox->close();
  mailbox.reset();
  while (void* message = messages.pop()) Py_DECREF(static_cast<PyObject*>(message));
  delete_deferred();
  Py_RETURN_NONE;
}

void mailbox_dealloc(PyObject* self) {
  Py_XDECREF(mailbox_close(self, nullptr));
  self_of(self)->mailbox.~shared_ptr();
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyMethodDef methods[] = {
    {"fileno", mailbox_fileno, METH_NOARGS,
     "fileno($self)\n--\n\n"
     "The descriptor to watch for reading; -1 when closed."},
    {"drain", mailbox_drain, METH_NOARGS,
     "drain($self)\n--\n\n"
     "The tokens of all requests that ended since the last call, in order."},
    {"resume", mailbox_resume, METH_NOARGS,
     "resume($self)\n--\n\n"
     "Drains, and switches to the greenlets of the Wait objects among the tokens. To be called in their hub."},
    {"close", mailbox_close, METH_NOARGS,
     "close($self)\n--\n\n"
     "Closes the descriptor; later messages are dropped."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>("Finished requests on their way to an event loop.\n\n"
                                  "The loop watches fileno(), which becomes readable once per batch of "
                                  "results, and\nthen calls drain(). Raises OSError when the process has no descriptor "
                                  "left.")},
    {Py_tp_new, reinterpret_cast<void*>(mailbox_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(mailbox_dealloc)},
    {Py_tp_methods, methods},
    {0, nullptr},
};

PyType_Spec spec = {"service_streamer._core.Mailbox", sizeof(MailboxObject), 0, Py_TPFLAGS_DEFAULT, slots};

}  // namespace

bool make_mailbox_type(PyObject* module) {
  mailbox_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return mailbox_type != nullptr && PyModule_AddType(module, mailbox_type) == 0;
}

bool check_mailbox(PyObject* object) {
  if (Py_TYPE(object) == mailbox_type) return true;
  PyErr_Format(PyExc_TypeError, "mailbox must be a Mailbox, got %.200s", Py_TYPE(object)->tp_name);
  return false;
}

std::shared_ptr<Mailbox> make_mailbox() {
  delete_deferred();
  return {new ObjectMailbox, [](ObjectMailbox* mailbox) { leave(mailbox); }};
}

std::shared_ptr<Mailbox> open_mailbox(PyObject* object) {
  MailboxObject* self = self_of(object);
  const Locked lock(self);
  return self->fork_generation == fork_generation() ? self->mailbox : nullptr;
}
}  // namespace service_streamer::bindings
