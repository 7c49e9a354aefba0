#include <Python.h>

#include <algorithm>
#include <memory>
#include <new>

#include "bindings/python/python_lock.h"
#include "service_streamer/waiting/semaphore.h"

namespace service_streamer::bindings {
namespace {

// Locked except between post() and the end of wait(). Needs no GIL.
class PythonLock final : public Semaphore {
 public:
  explicit PythonLock(PyThread_type_lock lock) : lock_(lock) { PyThread_acquire_lock(lock_, NOWAIT_LOCK); }
  ~PythonLock() override { PyThread_free_lock(lock_); }
  PythonLock(const PythonLock&) = delete;
  PythonLock& operator=(const PythonLock&) = delete;

  Wake wait(TimePoint deadline) override {
    for (;;) {
      const PyLockStatus status = PyThread_acquire_lock_timed(lock_, microseconds_until(deadline), 1);
      if (status == PY_LOCK_ACQUIRED) return Wake::kUnparked;
      if (status == PY_LOCK_INTR) return Wake::kInterrupted;
      if (deadline <= Clock::now()) return Wake::kTimeout;
    }
  }

  void post() override { PyThread_release_lock(lock_); }

 private:
  // At most a day, because Python has a limit; -1: for ever.
  static PY_TIMEOUT_T microseconds_until(TimePoint deadline) {
    using std::chrono::microseconds;
    if (deadline == TimePoint::max()) return -1;
    const TimePoint now = Clock::now();
    if (deadline <= now) return 0;
    const Duration left = std::min<Duration>(deadline - now, std::chrono::hours(24));
    return std::chrono::ceil<microseconds>(left).count();
  }

  const PyThread_type_lock lock_;
};

std::unique_ptr<Semaphore> make_python_lock() noexcept {
  const PyThread_type_lock lock = PyThread_allocate_lock();
  if (lock == nullptr) return nullptr;
  std::unique_ptr<Semaphore> made(new (std::nothrow) PythonLock(lock));
  if (made == nullptr) PyThread_free_lock(lock);
  return made;
}

}  // namespace

void sleep_on_python_locks() {
  Semaphore::make_by(make_python_lock);
}

}  // namespace service_streamer::bindings
