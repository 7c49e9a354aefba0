#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <exception>
#include <memory>
#include <string>

#include "bindings/torch/groups.h"
#include "bindings/torch/images.h"
#include "bindings/torch/loaded_model.h"
#include "bindings/torch/options.h"
#include "bindings/torch/python_tensors.h"
#include "bindings/torch/without_gil.h"
#include "service_streamer/cuda/gather.h"
#include "service_streamer/torch/process.h"
#include "service_streamer/torch/shims.h"

namespace py = pybind11;

namespace service_streamer::bindings {
namespace {

// A module with torch's C++ library fits one version of torch, because virtual tables differ between versions. The
// others fit every torch that has the functions they look up.
void check_torch() {
  const std::string found = py::str(py::module_::import("torch").attr("__version__"));
  const std::string built_for = SERVICE_STREAMER_TORCH_VERSION;
  const auto release = [](const std::string& version) { return version.substr(0, version.find('+')); };
  if (!built_for.empty() && release(found) != release(built_for)) {
    throw py::import_error("service_streamer._torch_built was built for torch " + built_for + ", but this is torch " +
                           found);
  }
  try {
    torch_backend::shims();
    load_python_tensors();
  } catch (const std::runtime_error& error) {
    throw py::import_error("native models need torch 2.10 or later, and this is torch " + found + ": " + error.what());
  }
}

py::capsule capsule_of(std::unique_ptr<NativeModel> model) {
  return {model.release(), NativeModel::kCapsule, [](void* pointer) { delete static_cast<NativeModel*>(pointer); }};
}

LoadedModel& model_in(const py::capsule& capsule) {
  return static_cast<LoadedModel&>(*capsule.get_pointer<NativeModel>());
}

py::capsule make_model(const py::dict& given) {
  OutputForm form{.kind = given["numpy"].cast<bool>() ? OutputKind::kNumpy : OutputKind::kTensor,
                  .type = given["output_type"]};
  return capsule_of(std::make_unique<LoadedModel>(std::make_shared<torch_backend::Model>(model_options_from(given)),
                                                  std::move(form)));
}

void load(const py::capsule& capsule) {
  const std::shared_ptr<torch_backend::Model> model = model_in(capsule).torch_model();
  without_gil([&] {  // loading is slow, and waits for threads that load other packages
    for (std::size_t device = 0; device < model->options().devices.size(); ++device) model->program(device);
  });
}

py::object run(const py::capsule& capsule, const py::tuple& items, bool as_batch) {
  PyObject* outputs = model_in(capsule).run(items.ptr(), as_batch);
  if (outputs == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(outputs);
}

}  // namespace
}  // namespace service_streamer::bindings

PYBIND11_MODULE(SERVICE_STREAMER_TORCH_MODULE, module) {
  using namespace service_streamer::bindings;
  check_torch();
  module.doc() = "Native models of torch for service_streamer; private.";
  module.attr("__version__") = SERVICE_STREAMER_VERSION;
  module.attr("torch_version") = SERVICE_STREAMER_TORCH_VERSION;
  module.def("make_model", &make_model, py::arg("options"), py::pos_only(),
             "Returns the capsule that Engine takes. The file is loaded on first use.");
  module.def("load", &load, py::arg("model"), py::pos_only(),
             "Loads the file of a model now. Raises RuntimeError if that fails.");
  module.def("run", &run, py::arg("model"), py::arg("items"), py::arg("as_batch"), py::pos_only(),
             "Runs a model on a tuple of items in the calling thread.");
  py::class_<Batcher, std::shared_ptr<Batcher>>(
      module, "Batcher", "The options and the reusable memory of a BatchedModel.", py::module_local())
      .def(py::init<const py::dict&>(), py::arg("options"), py::pos_only());
  py::class_<Groups>(module, "Groups", "The items of a batch, divided into groups that can share tensors.",
                     py::module_local())
      .def(py::init<std::shared_ptr<Batcher>, const py::list&, const py::list&>(), py::arg("batcher"), py::arg("items"),
           py::arg("keys"), py::pos_only(), "`keys` has a number for each item, or None to leave the item out.")
      .def_property_readonly("refused", &Groups::refused, "A dict from the index of an invalid item to its exception.")
      .def_property_readonly("places", &Groups::places,
                             "The indices of the items of each group, the group of the oldest item first.")
      .def("collate", &Groups::collate, py::arg("group"), py::pos_only(),
           "Returns positional arguments, named arguments, and the padded length and the lengths of the items, or "
           "None.");
  module.def("normalize_images", &normalize_images, py::arg("images"), py::arg("scale"), py::arg("shift"),
             py::arg("half"), py::pos_only(),
             "Returns value * scale + shift for each channel, with the channels first.");
  module.def("has_kernels", &service_streamer::cuda::has_kernels,
             "True if there are CUDA kernels that run on this device.");
  module.def("renew_process_lock", &service_streamer::torch_backend::renew_process_lock,
             "To be called in a forked child: a thread of the parent may have held the lock.");
}
