#include "bindings/futures/engine_object.h"

#include "bindings/python/errors.h"
#include "bindings/python/fork.h"

namespace service_streamer::bindings {
namespace {

thread_local const EngineObject* served = nullptr;

}  // namespace

PyTypeObject* engine_type = nullptr;

bool from_this_process(EngineObject* engine) {
  if (engine->fork_generation == fork_generation()) return true;
  // With Python's fork hooks the streamer would have made a new engine in the child.
  raise_message(python::streamer_closed,
                "this process was forked without Python's hooks, so the streamer is still the parent's (uWSGI: set "
                "py-call-uwsgi-fork-hooks)");
  return false;
}

const EngineObject* served_engine() {
  return served;
}

void set_served_engine(const EngineObject* engine) {
  served = engine;
}

}  // namespace service_streamer::bindings
