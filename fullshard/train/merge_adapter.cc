// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/merge_adapter.h"

#include <ATen/core/grad_mode.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>

#include <map>
#include <set>
#include <vector>

#include "fullshard/base/error.h"
#include "fullshard/base/printable.h"
#include "fullshard/base/real_path.h"
#include "fullshard/checkpoint/weights_folder.h"
#include "fullshard/formats/element_type.h"
#include "fullshard/formats/free_place.h"
#include "fullshard/formats/weights/open_weights.h"
#include "fullshard/models/lora/add_lora.h"
#include "fullshard/nn/module_walk.h"
#include "fullshard/ops/products/linear.h"
#include "fullshard/report/records/run_file.h"
#include "fullshard/stored/side_files.h"
#include "fullshard/tensor_io/read_tensor.h"
#include "fullshard/train/adapter.h"
#include "fullshard/train/model_source.h"
#include "fullshard/train/written_folder.h"

namespace fullshard {
namespace {

// What becomes of one tensor of the base's file.
struct MergedTensor {
  std::string a{}, b{};  // names in the adapter's file; empty: no low-rank part
  double scale = 1;
  bool is_turned = false;  // the file has it [inputs, outputs]
  std::string replaced{};  // by this tensor of the adapter's file
};

class AdapterMerge {
 public:
  AdapterMerge(const ModelSource& source, const std::string& adapter)
      : source_(source),
        weights_(stored::open_model_weights(source.folder)),
        adapter_file_(train::adapter_weights_in(adapter)),
        adapter_(open_weights(adapter_file_)),
        model_(make_deferred_model(source)) {
    add_lora(*model_, load_adapter_config(adapter).lora);
    for (const auto& item : model_->named_parameters()) plan_whole(item.key());
    nn::for_each_node(nn::walk_modules(*model_),
                      [&](const nn::ModuleNode& node) { plan_layer(node); });
    check_all_used(adapter);
  }

  void write(const std::string& folder, const MergeAdapterOptions& options) const {
    const at::NoGradGuard no_grad;
    std::vector<TensorPlan> plans;
    for (const StoredTensor& tensor : weights_->tensors()) {
      const bool is_cast = options.dtype && at::isFloatingType(tensor.dtype);
      plans.push_back({tensor.name, tensor.shape, is_cast ? *options.dtype : tensor.dtype});
    }
    checkpoint::WeightsFolder files(folder, plans, options.max_file_bytes);
    for (const TensorPlan& plan : plans) {
      files.write_range(plan.name, 0, merged(plan.name).to(plan.dtype));
    }
    files.finish();
  }

 private:
  // The name under which the base's file has a parameter; empty: it has none.
  std::string name_in_base(const std::string& parameter) const {
    const auto file = model_->file_name(parameter);
    if (weights_->find(file.name) != nullptr) return file.name;
    for (const std::string& other : file.others) {
      if (weights_->find(other) != nullptr) return other;
    }
    return "";
  }

  const StoredTensor& stored_in_adapter(const std::string& name) {
    const StoredTensor* found = adapter_->find(name);
    if (found == nullptr) {
      fail_as(ErrorKind::input, "{}: has no tensor '{}', which its adapter_config.json promises",
              adapter_file_, name);
    }
    used_.insert(name);
    return *found;
  }

  void check_shape(const StoredTensor& stored, const std::vector<int64_t>& expected) const {
    if (stored.shape == expected) return;
    fail_as(ErrorKind::input,
            "{}: '{}' is {}, expected {} for {}; it is an adapter of another base", stored.file,
            base::printable(stored.name), format_shape(stored.shape), format_shape(expected),
            source_.folder);
  }

  void plan_whole(const std::string& parameter) {
    const auto file = train::adapter_file_name(*model_, parameter);
    if (is_lora_parameter(parameter) || adapter_->find(file.name) == nullptr) return;
    const std::string base = required_in_base(parameter);
    check_shape(stored_in_adapter(file.name), weights_->find(base)->shape);
    merged_[base].replaced = file.name;
  }

  std::string required_in_base(const std::string& parameter) const {
    std::string name = name_in_base(parameter);
    if (!name.empty()) return name;
    fail_as(ErrorKind::input, "{}: has no weights of '{}', which the adapter changes",
            source_.folder, parameter);
  }

  void plan_layer(const nn::ModuleNode& node) {
    const auto* linear = dynamic_cast<const LinearImpl*>(node.module);
    if (linear == nullptr || !linear->is_adapted()) return;
    const std::string parameter = nn::join_path(node.path, "weight");
    MergedTensor& tensor = merged_[required_in_base(parameter)];
    const auto terms = linear->terms();
    const auto part_name = [&](const char* part) {
      return train::adapter_file_name(*model_, nn::join_path(node.path, part)).name;
    };
    tensor.a = part_name("lora_A.weight");
    tensor.b = part_name("lora_B.weight");
    check_shape(stored_in_adapter(tensor.a), terms.low_rank.a.sizes().vec());
    check_shape(stored_in_adapter(tensor.b), terms.low_rank.b.sizes().vec());
    tensor.scale = terms.low_rank.scale;
    tensor.is_turned = model_->file_name(parameter).transposed;
  }

  void check_all_used(const std::string& adapter) const {
    std::vector<std::string> extra;
    for (const StoredTensor& tensor : adapter_->tensors()) {
      if (!used_.contains(tensor.name)) extra.push_back(base::printable(tensor.name));
    }
    if (extra.empty()) return;
    fail_as(ErrorKind::input, "{}: has tensors that belong to nothing in {}: {}", adapter,
            source_.folder, fmt::join(extra, ", "));
  }

  at::Tensor merged(const std::string& name) const {
    const auto found = merged_.find(name);
    if (found == merged_.end()) return tensor_io::read_tensor(*weights_, name);
    const MergedTensor& tensor = found->second;
    if (!tensor.replaced.empty()) return tensor_io::read_tensor(*adapter_, tensor.replaced);
    const auto a = tensor_io::read_tensor(*adapter_, tensor.a).to(at::kFloat);
    const auto b = tensor_io::read_tensor(*adapter_, tensor.b).to(at::kFloat);
    const auto change = b.mm(a) * tensor.scale;
    return tensor_io::read_tensor(*weights_, name).to(at::kFloat) +
           (tensor.is_turned ? change.t() : change);
  }

  const ModelSource& source_;
  std::unique_ptr<TensorSource> weights_;
  std::string adapter_file_;
  std::unique_ptr<TensorSource> adapter_;
  std::shared_ptr<LanguageModel> model_;
  std::map<std::string, MergedTensor> merged_;  // by the name in the base's file
  std::set<std::string> used_;                  // of the adapter's file
};

// It would be gone before it can be merged again.
void check_is_not_read(const std::string& output, const ModelSource& base,
                       const std::string& adapter) {
  for (const std::string& read : {base.folder, adapter}) {
    if (!base::lies_in(read, output)) continue;
    fail_as(ErrorKind::usage, "{}: {} is read from it; name another folder", output, read);
  }
}

}  // namespace

void merge_adapter(const std::string& base, const std::string& adapter, const std::string& output,
                   const MergeAdapterOptions& options) {
  formats::check_is_free(output, options.overwrites);
  const ModelSource source = find_pretrained_model(base);
  if (!source.has_weights) {
    fail_as(ErrorKind::input, "{}: has no weights to add the adapter to", source.folder);
  }
  check_is_not_read(output, source, adapter);
  const AdapterMerge merge(source, adapter);
  train::write_folder(output, [&](const std::string& made) {
    report::write_whole_file(made + "/config.json", source.config_json);
    train::copy_tokenizer(source.folder, made);
    merge.write(made, options);
  });
}

}  // namespace fullshard
