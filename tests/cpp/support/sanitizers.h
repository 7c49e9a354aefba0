#pragma once

// True if the build uses ThreadSanitizer or AddressSanitizer, with GCC or Clang.

#if defined(__has_feature)
#define SUPPORT_HAS_FEATURE(name) __has_feature(name)
#else
#define SUPPORT_HAS_FEATURE(name) 0
#endif

namespace service_streamer::support {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || SUPPORT_HAS_FEATURE(thread_sanitizer) || \
    SUPPORT_HAS_FEATURE(address_sanitizer)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

}  // namespace service_streamer::support
