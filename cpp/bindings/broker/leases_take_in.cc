#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "bindings/broker/broker_bodies.h"
#include "bindings/broker/broker_ingress.h"
#include "bindings/broker/leases.h"
#include "bindings/broker/submissions.h"
#include "bindings/python/arguments.h"
#include "bindings/python/errors.h"
#include "bindings/python/texts.h"

// Leases.take_in(): entries that came from the broker.

namespace service_streamer::bindings {
namespace {

using ipc::RequestHead;

// Limits for the times of entries, in ms on the broker's clock.
struct Times {
  double ahead;           // of the monotonic clock
  long long now;          // an earlier deadline is over
  long long oldest_sent;  // an entry that was sent earlier is a replay

  bool is_signed() const { return oldest_sent != std::numeric_limits<long long>::min(); }
};

// The id and message of an entry from Redis: [id, [protocol.FIELD, message]].
bool parts_of(PyObject* entry, PyObject*& id, PyObject*& message) {
  if (!PyList_CheckExact(entry) || PyList_GET_SIZE(entry) != 2) return false;
  id = PyList_GET_ITEM(entry, 0);
  PyObject* fields = PyList_GET_ITEM(entry, 1);
  if (!PyBytes_Check(id) || !PyList_CheckExact(fields) || PyList_GET_SIZE(fields) != 2) return false;
  PyObject* field = PyList_GET_ITEM(fields, 0);
  message = PyList_GET_ITEM(fields, 1);
  return PyBytes_Check(field) && text_of(field) == "m" && PyBytes_Check(message);
}

// A time of the broker's clock on that of the core.
TimePoint time_of(std::int64_t time, const Times& times) {
  return TimePoint(duration_from(std::max(0.0, static_cast<double>(time) - times.ahead) / 1000));
}

struct Arrivals {
  Submissions submissions{sizeof(RequestHead)};
  std::vector<PyObject*> entries;  // of each submission; borrowed
  std::vector<std::uint32_t> items;
};

// If the broker's clock was stepped forward, the estimate of a client is old until it is refreshed. So the times in its
// message are too early. The id has the time at which the broker got the message. Not for signed messages: one that
// another sender has recorded must stay late.
void correct(RequestHead& head, std::string_view id) {
  constexpr std::int64_t kStep = 1000;  // ms; less may be the way to the broker
  std::int64_t appended = 0;
  std::int64_t behind = 0;
  std::from_chars(id.data(), id.data() + id.size(), appended);
  if (__builtin_sub_overflow(appended, head.sent, &behind) || behind <= kStep) return;
  head.sent = appended;
  std::int64_t deadline = head.deadline;
  if (deadline != 0 && !__builtin_add_overflow(deadline, behind, &deadline)) head.deadline = deadline;
}

// Adds an entry to the arrivals, or to `odd`. Leaves out entries that are here already.
bool look_at(LeasesObject* self, PyObject* entry, const Times& times, Arrivals& arrivals, PyObject* odd) {
  PyObject* id = nullptr;
  PyObject* message = nullptr;
  RequestHead head;
  const bool sound = parts_of(entry, id, message) && ipc::parse_request_head(text_of(message), head);
  const bool replayed = sound && head.sent < times.oldest_sent;  // as the client says
  if (sound && !times.is_signed()) correct(head, text_of(id));
  const bool late = sound && head.deadline != 0 && times.now > head.deadline;
  if (!sound || late || replayed) return PyList_Append(odd, entry) == 0;
  const CaughtError failure = attempt([&] {
    const std::uint64_t number = locked(self, [&] { return self->entries->add(text_of(id), head); });
    if (number == 0) return;
    const TimePoint deadline = head.deadline != 0 ? time_of(head.deadline, times) : TimePoint::max();
    arrivals.submissions.add(
        {.id = number, .priority = head.priority, .deadline = deadline, .sent = time_of(head.sent, times)}, message);
    arrivals.entries.push_back(entry);
    arrivals.items.push_back(std::uint32_t{head.items});
  });
  return !failure.raise();
}

// The note to the client if a request is refused for good. nullptr: it was taken, or the engine is closed and another
// process will take the entry. From the name of a tenant the client makes a ValueError (errors.h).
PyObject* note_of_refusal(const ipc::BrokerIngress::Submission& submission, std::uint32_t items) {
  if (submission.submitted == ipc::BrokerIngress::SubmitStatus::kMalformed)
    return PyUnicode_FromString("the request cannot be read: its body is malformed");
  if (submission.submitted == ipc::BrokerIngress::SubmitStatus::kUnknownTenant) {
    const std::string note = "tenant: " + submission.tenant;
    return PyUnicode_DecodeUTF8(note.data(), static_cast<Py_ssize_t>(note.size()), "replace");
  }
  if (submission.submitted != ipc::BrokerIngress::SubmitStatus::kAccepted || submission.items == items) return nullptr;
  return PyUnicode_FromFormat("the request cannot be read: it has %s, not the %u that it says",
                              items_text(submission.items).text, static_cast<unsigned>(items));
}

// Removes the entries that were not taken, and adds (entry, note) to `refused`.
bool sort_out(LeasesObject* self, ipc::BrokerIngress& ingress, const Arrivals& arrivals, PyObject* refused,
              unsigned long long& taken, unsigned long long& items) {
  bool fewer = false;
  for (std::size_t i = 0; i < arrivals.entries.size(); ++i) {
    const ipc::BrokerIngress::Submission& submission = arrivals.submissions.all[i];
    const bool is_in = submission.submitted == ipc::BrokerIngress::SubmitStatus::kAccepted;
    if (is_in && submission.items == arrivals.items[i]) {
      ++taken;
      items += submission.items;
      continue;
    }
    locked(self, [&] { return self->entries->remove(text_of(PyList_GET_ITEM(arrivals.entries[i], 0))); });
    fewer = true;
    if (is_in && attempt([&] { ingress.cancel({&submission.head.id, 1}); }).raise()) return false;
    PyObject* note = note_of_refusal(submission, arrivals.items[i]);
    if (note == nullptr && PyErr_Occurred() != nullptr) return false;
    if (note != nullptr && !append(refused, Py_BuildValue("(ON)", arrivals.entries[i], note))) return false;
  }
  return !fewer || ring(self);
}

}  // namespace

PyObject* leases_take_in(PyObject* object, PyObject* args, PyObject* kwargs) {
  LeasesObject* self = leases_of(object);
  ipc::BrokerIngress* ingress = ingress_of(self->ingress);
  PyObject* entries;
  Times times{};
  static const char* names[] = {"entries", "ahead", "now", "oldest_sent", nullptr};
  if (ingress == nullptr || !PyArg_ParseTupleAndKeywords(args, kwargs, "O!dLL", const_cast<char**>(names), &PyList_Type,
                                                         &entries, &times.ahead, &times.now, &times.oldest_sent)) {
    return nullptr;
  }
  PyObject* odd = PyList_New(0);
  PyObject* refused = PyList_New(0);
  auto* arrivals = new Arrivals;
  unsigned long long taken = 0;
  unsigned long long items = 0;
  bool done = odd != nullptr && refused != nullptr;
  for (Py_ssize_t i = 0; done && i < PyList_GET_SIZE(entries); ++i) {
    done = look_at(self, PyList_GET_ITEM(entries, i), times, *arrivals, odd);
  }
  done = done && arrivals->submissions.submit(*ingress) && sort_out(self, *ingress, *arrivals, refused, taken, items);
  arrivals->submissions.clear();
  delete arrivals;
  PyObject* outcome = done ? Py_BuildValue("(KKOO)", taken, items, odd, refused) : nullptr;
  Py_XDECREF(odd);
  Py_XDECREF(refused);
  return outcome;
}

}  // namespace service_streamer::bindings
