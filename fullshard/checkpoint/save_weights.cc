// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/checkpoint/master_stream.h"
#include "fullshard/checkpoint/model_io.h"
#include "fullshard/checkpoint/name_match.h"
#include "fullshard/checkpoint/patient_work.h"
#include "fullshard/checkpoint/weights_folder.h"
#include "fullshard/engine/engine_access.h"
#include "fullshard/engine/storage/agreement.h"
#include "fullshard/nn/module_walk.h"

namespace fullshard {
namespace {

struct SavedTensor {
  const checkpoint::ModelTensor* tensor = nullptr;
  bool transposed = false;
  TensorPlan plan;  // as the file holds it
};

// Places of parameters and buffers in the module tree: the order in which files are filled.
std::map<std::string, int> places_in(torch::nn::Module& module) {
  std::map<std::string, int> places;
  nn::for_each_node(nn::walk_modules(module), [&](const nn::ModuleNode& node) {
    for (const auto* held : {&node.parameters, &node.buffers}) {
      for (const auto& item : *held) {
        places.emplace(nn::join_path(node.path, item.name), static_cast<int>(places.size()));
      }
    }
  });
  return places;
}

std::vector<SavedTensor> plan_tensors(const std::vector<checkpoint::ModelTensor>& tensors,
                                      torch::nn::Module& module, const SaveOptions& options) {
  std::vector<SavedTensor> saved;
  std::map<std::string, std::string> taken;
  for (const auto& tensor : tensors) {
    const auto& name = tensor.names.front();
    const auto in_file = checkpoint::name_in_file(tensor, name, options.names);
    if (in_file.name.empty()) continue;
    const auto [other, is_new] = taken.emplace(in_file.name, name);
    if (!is_new) {
      fail_as(ErrorKind::usage, "save_weights: '{}' and '{}' are both called '{}' in files",
              other->second, name, in_file.name);
    }
    auto shape = tensor.shape;
    if (in_file.transposed) std::reverse(shape.begin(), shape.end());
    const auto dtype = at::isFloatingType(tensor.dtype) ? options.dtype : tensor.dtype;
    saved.push_back({&tensor, in_file.transposed, {in_file.name, std::move(shape), dtype}});
  }
  const auto places = places_in(module);
  std::stable_sort(saved.begin(), saved.end(), [&](const SavedTensor& a, const SavedTensor& b) {
    return places.at(a.tensor->names.front()) < places.at(b.tensor->names.front());
  });
  return saved;
}

// One rank's part in a save. Rank 0 writes while the others wait patiently; after an error there
// it writes nothing more, and all ranks leave at the same point.
class Saver {
 public:
  Saver(engine::Engine& engine, std::vector<SavedTensor> saved)
      : engine_(engine), saved_(std::move(saved)), writes_(engine.mesh().world().rank() == 0) {
    for (const auto& item : saved_) by_slot_[{item.tensor->group, item.tensor->slot}] = &item;
  }

  void run(const std::string& folder, const SaveOptions& options) {
    // Whoever does not enter is late; whoever writes is not.
    checkpoint::patient_ranks(engine_.mesh()).barrier("save_weights");
    patiently([&] { open(folder, options); });
    for (const auto* group : saved_groups()) {
      if (!goes_on()) break;
      save_group(*group);
    }
    patiently([&] { save_whole_tensors(); });
    patiently([&] { folder_->finish(); });
    folder_.reset();
    engine::throw_alike(checkpoint::patient_ranks(engine_.mesh()), error_, "save_weights");
  }

 private:
  // A tensor that must be whole before it can be turned, in host memory.
  struct Assembly {
    memory::Block block;  // where that is the engine's own
    at::Tensor values;    // 1-D
    int64_t missing = 0;
  };

  template <class Act>
  void attempt(const Act& act) {
    if (writes_ && !error_) error_ = engine::error_of(act);
  }
  template <class Act>
  void patiently(const Act& act) {
    checkpoint::wait_for_rank_0(engine_.mesh().everyone(), [&] { attempt(act); });
  }

  bool goes_on() const {
    const auto flag = at::empty({1}, at::kLong).fill_(error_ ? 0 : 1);
    checkpoint::patient_ranks(engine_.mesh()).broadcast(flag, 0, "save_weights").wait();
    return flag.item<int64_t>() == 1;
  }

  void open(const std::string& folder, const SaveOptions& options) {
    std::vector<TensorPlan> plans;
    for (const auto& item : saved_) plans.push_back(item.plan);
    folder_.emplace(folder, plans, options.max_file_bytes, options.file_name);
  }

  // Those of which something goes into files.
  std::vector<const engine::ParamGroup*> saved_groups() const {
    std::vector<const engine::ParamGroup*> groups;
    for (const auto& unit : engine_.units()) {
      for (const auto& group : unit->groups()) {
        const auto first = by_slot_.lower_bound({group.get(), 0});
        const bool is_saved = first != by_slot_.end() && first->first.first == group.get();
        if (is_saved) groups.push_back(group.get());
      }
    }
    return groups;
  }

  void save_group(const engine::ParamGroup& group) {
    checkpoint::stream_masters(engine_, group,
                               [&](int slot, int64_t begin, const at::Tensor& values) {
                                 const auto found = by_slot_.find({&group, slot});
                                 if (found == by_slot_.end()) return;
                                 attempt([&] { save_range(*found->second, begin, values); });
                               });
    assemblies_.clear();
  }

  void save_range(const SavedTensor& item, int64_t begin, const at::Tensor& values) {
    if (!item.transposed) {
      folder_->write_range(item.plan.name, begin, values);
      return;
    }
    auto& assembly = assembly_of(item);
    assembly.values.narrow(0, begin, values.numel()).copy_(values);
    assembly.missing -= values.numel();
    if (assembly.missing > 0) return;
    folder_->write_range(item.plan.name, 0, assembly.values.view(item.tensor->shape).t());
    assemblies_.erase(&item);
  }

  Assembly& assembly_of(const SavedTensor& item) {
    auto& assembly = assemblies_[&item];
    if (assembly.values.defined()) return assembly;
    const int64_t numel = item.tensor->numel();
    const auto dtype = item.tensor->dtype;
    if (engine_.mesh().world().device().is_cpu()) {
      assembly.block = engine_.pool()->take(numel * static_cast<int64_t>(c10::elementSize(dtype)),
                                            tiers::Purpose::workspace);
      assembly.values = assembly.block.as(numel, dtype);
    } else {
      assembly.values = at::empty({numel}, dtype);
    }
    assembly.missing = numel;
    return assembly;
  }

  void save_whole_tensors() {
    for (const auto& item : saved_) {
      if (item.tensor->group != nullptr) continue;
      const auto whole = item.tensor->whole.cpu();
      folder_->write_range(item.plan.name, 0, item.transposed ? whole.t() : whole);
    }
  }

  engine::Engine& engine_;
  std::vector<SavedTensor> saved_;
  bool writes_;
  std::map<std::pair<const engine::ParamGroup*, int>, const SavedTensor*> by_slot_;
  std::map<const SavedTensor*, Assembly> assemblies_;
  std::optional<checkpoint::WeightsFolder> folder_;
  std::optional<Error> error_;
};

}  // namespace

void save_weights(const std::string& folder, ShardedModel& model, const SaveOptions& options) {
  auto& engine = engine::EngineAccess::of(model);
  engine.check_awake("save_weights");
  engine.check_registered();
  check(engine.has_values(),
        "save_weights: the model was built deferred and its parameters have no values yet; call "
        "load_weights or initialise_weights first");
  const at::NoGradGuard no_grad;
  const auto tensors = checkpoint::model_tensors(engine);
  Saver(engine, plan_tensors(tensors, model.module(), options)).run(folder, options);
}

}  // namespace fullshard
