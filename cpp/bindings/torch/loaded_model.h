#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <mutex>
#include <utility>

#include "bindings/native/native_model.h"
#include "bindings/torch/results.h"
#include "service_streamer/torch/model.h"

namespace service_streamer::bindings {

// A torch model behind the NativeModel interface of _core. Methods that use Python objects require the GIL.
class LoadedModel final : public NativeModel {
 public:
  LoadedModel(std::shared_ptr<torch_backend::Model> model, OutputForm form)
      : model_(std::move(model)), form_(std::move(form)) {}

  std::shared_ptr<native::Model> model() override { return model_; }
  const std::shared_ptr<torch_backend::Model>& torch_model() const { return model_; }
  native::ItemsRef read(PyObject* items) override;
  PyObject* value_of(const std::vector<native::OutputRange>& ranges, bool as_batch) override;

  // Runs the model on a tuple of items in the calling thread and returns the outputs. Releases the GIL while the model
  // runs. Concurrent calls wait for each other. Returns nullptr with an exception set on failure.
  PyObject* run(PyObject* items, bool as_batch);

 private:
  const std::shared_ptr<torch_backend::Model> model_;
  const OutputForm form_;

  std::mutex running_;  // guards runner_; taken without the GIL
  std::unique_ptr<native::Runner> runner_;
};

}  // namespace service_streamer::bindings
