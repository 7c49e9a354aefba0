#include "service_streamer/native/phases.h"

namespace service_streamer::native {
namespace {

const char* name_of(LoggedEvent::Kind kind) {
  switch (kind) {
    case LoggedEvent::Kind::kCollated:
      return "collate";
    case LoggedEvent::Kind::kCopiedIn:
      return "copy in";
    case LoggedEvent::Kind::kCopiedOut:
      return "copy out";
    case LoggedEvent::Kind::kWaited:
      return "wait";
    default:
      return "compute";
  }
}

}  // namespace

PhaseRange::PhaseRange(PhaseLog* log, LoggedEvent::Kind kind)
    : trace_(name_of(kind)), log_(log), kind_(kind), begin_(log != nullptr ? Clock::now() : TimePoint()) {}

PhaseRange::~PhaseRange() {
  if (log_ != nullptr) log_->add({.kind = kind_, .begin = begin_, .end = Clock::now()});
}

}  // namespace service_streamer::native
