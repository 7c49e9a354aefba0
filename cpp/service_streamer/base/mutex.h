#pragma once

#include <cassert>
#include <mutex>

// Annotations for Clang's thread-safety analysis, and a mutex and a lock that carry them. They say which mutex guards
// what. `make lint` fails where the code breaks this. Other compilers ignore the annotations.
#if defined(__clang__)
#define SERVICE_STREAMER_ANNOTATE(x) __attribute__((x))
#else
#define SERVICE_STREAMER_ANNOTATE(x)
#endif

#define CAPABILITY(x) SERVICE_STREAMER_ANNOTATE(capability(x))
#define SCOPED_CAPABILITY SERVICE_STREAMER_ANNOTATE(scoped_lockable)
#define GUARDED_BY(x) SERVICE_STREAMER_ANNOTATE(guarded_by(x))
#define REQUIRES(...) SERVICE_STREAMER_ANNOTATE(requires_capability(__VA_ARGS__))
#define EXCLUDES(...) SERVICE_STREAMER_ANNOTATE(locks_excluded(__VA_ARGS__))
#define ACQUIRE(...) SERVICE_STREAMER_ANNOTATE(acquire_capability(__VA_ARGS__))
#define RELEASE(...) SERVICE_STREAMER_ANNOTATE(release_capability(__VA_ARGS__))
#define TRY_ACQUIRE(...) SERVICE_STREAMER_ANNOTATE(try_acquire_capability(__VA_ARGS__))
#define ASSERT_CAPABILITY(x) SERVICE_STREAMER_ANNOTATE(assert_capability(x))
#define NO_THREAD_SAFETY_ANALYSIS SERVICE_STREAMER_ANNOTATE(no_thread_safety_analysis)

namespace service_streamer {

class CAPABILITY("mutex") Mutex {
 public:
  void lock() ACQUIRE() { mutex_.lock(); }
  void unlock() RELEASE() { mutex_.unlock(); }
  bool try_lock() TRY_ACQUIRE(true) { return mutex_.try_lock(); }

 private:
  std::mutex mutex_;
};

class SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() RELEASE() { mutex_.unlock(); }

  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// For a part of an object that has a reference to the mutex of its owner. The analysis takes this for another mutex. So
// the owner passes the mutex that it holds, and a method of the part calls same_mutex(held, mutex_) first.
inline void same_mutex([[maybe_unused]] const Mutex& held, [[maybe_unused]] const Mutex& mutex) REQUIRES(held)
    ASSERT_CAPABILITY(mutex) {
  assert(&held == &mutex);
}

}  // namespace service_streamer
