// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/compare.h"

#include <ATen/ops/zeros.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "fullshard/base/error.h"
#include "fullshard/base/printable.h"
#include "fullshard/tensor_io/read_tensor.h"
#include "fullshard/train/adapter.h"

namespace fullshard {
namespace {

at::Tensor find_tensor(const TensorSource& reference, const char* name) {
  return reference.find(name) != nullptr ? tensor_io::read_tensor(reference, name) : at::Tensor();
}

void check_shape(const std::string& name, at::IntArrayRef found, at::IntArrayRef expected) {
  if (found == expected) return;
  fail_as(ErrorKind::input, "reference: {} is of shape [{}], expected [{}]", base::printable(name),
          fmt::join(found, ", "), fmt::join(expected, ", "));
}

void check_mask(const char* name, const at::Tensor& mask, const at::Tensor& tokens) {
  if (mask.defined() && tokens.defined()) check_shape(name, mask.sizes(), tokens.sizes());
}

ModelInputs inputs_of(const TensorSource& reference, at::Device device) {
  ModelInputs inputs;
  const auto ids = [&](const char* name) {
    const at::Tensor found = find_tensor(reference, name);
    return found.defined() ? found.to(device, at::kLong) : found;
  };
  inputs.input_ids = ids("input_ids");
  if (!inputs.input_ids.defined()) {
    fail_as(ErrorKind::input, "reference: has no input_ids; tools/make_reference.py writes one");
  }
  if (reference.find("position_ids") != nullptr) {
    fail_as(ErrorKind::input,
            "reference: has position_ids, which are not supported; write one of a forward without "
            "them");
  }
  inputs.attention_mask = ids("attention_mask");
  inputs.token_type_ids = ids("token_type_ids");
  inputs.decoder_input_ids = ids("decoder_input_ids");
  inputs.decoder_attention_mask = ids("decoder_attention_mask");
  inputs.labels = ids("labels");
  check_mask("attention_mask", inputs.attention_mask, inputs.input_ids);
  check_mask("decoder_attention_mask", inputs.decoder_attention_mask,
             inputs.decoder_input_ids.defined() ? inputs.decoder_input_ids : inputs.labels);
  inputs.wants_logits = true;
  return inputs;
}

Comparison compared(const std::string& name, const at::Tensor& ours, const at::Tensor& theirs) {
  const at::Tensor a = ours.detach().to(at::kCPU, at::kDouble).reshape(-1);
  const at::Tensor b = theirs.to(at::kDouble).reshape(-1);
  Comparison result{.name = name};
  if (a.numel() == 0) return result;
  result.absolute = (a - b).abs().max().item<double>();
  result.largest = b.abs().max().item<double>();
  result.relative = result.absolute / std::max(result.largest, 1e-30);
  return result;
}

// Rows of real tokens; what a model gives for padding means nothing.
at::Tensor real_rows(const at::Tensor& values, const at::Tensor& mask) {
  if (!mask.defined() || mask.sizes() != values.sizes().slice(0, 2)) return values;
  return values.index({mask.to(values.device(), at::kBool)});
}

// NaN would be lost among others in a maximum.
double largest_difference(const at::Tensor& ours, const at::Tensor& theirs) {
  const double found = (ours - theirs).abs().max().item<double>();
  return std::isfinite(found) ? found : std::numeric_limits<double>::infinity();
}

class GradientComparison {
 public:
  GradientComparison(const LanguageModel& model, const TensorSource& reference)
      : reference_(reference) {
    for (const auto& item : model.named_parameters()) {
      const auto file = model.file_name(item.key());
      names_[file.name] = {item.key(), file.transposed, item.value().sizes().vec(),
                           item.value().requires_grad()};
      for (const std::string& other : file.others) names_.try_emplace(other, names_[file.name]);
      // As PEFT's files call what is trained beside a frozen base.
      names_.try_emplace(train::adapter_file_name(model, item.key()).name, names_[file.name]);
    }
  }

  std::vector<Comparison> run(ShardedModel& sharded) const {
    std::map<std::string, std::vector<PieceView>> pieces;
    for (PieceView& piece : sharded.pieces(Masters::as_kept)) {
      pieces[piece.name].push_back(std::move(piece));
    }
    std::vector<Comparison> results;
    for (const StoredTensor& stored : reference_.tensors()) {
      if (!stored.name.starts_with("grad.")) continue;
      results.push_back(compare_one(stored, pieces, sharded));
    }
    // Some gradients are zero but for rounding (the bias of attention's keys): they are measured
    // against a thousandth of the largest gradient instead of their own noise.
    double most = 0;
    for (const Comparison& found : results) {
      if (std::isfinite(found.largest)) most = std::max(most, found.largest);
    }
    for (Comparison& found : results) {
      found.relative = found.absolute / std::max({found.largest, most * 1e-3, 1e-30});
    }
    return results;
  }

 private:
  struct Place {
    std::string parameter;
    bool transposed = false;
    std::vector<int64_t> shape{};  // the parameter's, which sharding keeps
    bool is_trained = true;
  };

  Comparison compare_one(const StoredTensor& stored,
                         const std::map<std::string, std::vector<PieceView>>& pieces,
                         ShardedModel& sharded) const {
    const auto place = names_.find(stored.name.substr(5));
    if (place == names_.end()) {
      fail_as(ErrorKind::input, "reference: {} is the gradient of no parameter of the model",
              base::printable(stored.name));
    }
    if (!place->second.is_trained) {
      fail_as(ErrorKind::input,
              "reference: {} is the gradient of a parameter that is frozen here; write one whose "
              "parameters are frozen alike",
              base::printable(stored.name));
    }
    at::Tensor theirs = tensor_io::read_tensor(reference_, stored.name).to(at::kDouble);
    std::vector<int64_t> expected = place->second.shape;
    if (place->second.transposed) std::ranges::reverse(expected);
    check_shape(stored.name, theirs.sizes(), expected);
    if (place->second.transposed) theirs = theirs.t().contiguous();
    theirs = theirs.reshape(-1);
    double differs = 0;
    const auto own = pieces.find(place->second.parameter);
    if (own != pieces.end()) {
      for (const PieceView& piece : own->second) {
        if (piece.numel() == 0) continue;
        const at::Tensor part = theirs.slice(0, piece.begin, piece.end);
        const at::Tensor ours = piece.gradient.defined() ? piece.gradient.to(at::kCPU, at::kDouble)
                                                         : at::zeros_like(part);
        differs = std::max(differs, largest_difference(ours, part));
      }
    }
    const Communicator& everyone = sharded.mesh().world().communicator();
    const auto largest = everyone.allocate(1, at::kDouble);
    largest.fill_(differs);
    everyone.all_reduce(largest, ReduceOp::max, "comparison").wait();
    Comparison result{.name = stored.name, .absolute = largest.item<double>()};
    result.largest = theirs.numel() > 0 ? theirs.abs().max().item<double>() : 0;
    return result;
  }

  const TensorSource& reference_;
  std::map<std::string, Place> names_;
};

}  // namespace

std::vector<Comparison> compare_model(LanguageModel& model, ShardedModel& sharded,
                                      const TensorSource& reference) {
  model.eval();
  const ModelInputs inputs = inputs_of(reference, sharded.mesh().world().device());
  const ModelOutputs outputs = model.forward(inputs);
  std::vector<Comparison> results;
  const auto add = [&](const char* name, const at::Tensor& ours, bool has_rows) {
    const at::Tensor theirs = find_tensor(reference, name);
    if (!theirs.defined()) return;
    if (!ours.defined()) {
      fail_as(ErrorKind::input, "reference: has {}, which the model does not give", name);
    }
    // A loss may be written as a scalar or as a list of one.
    if (has_rows || theirs.numel() != 1) check_shape(name, theirs.sizes(), ours.sizes());
    const bool masks = has_rows && !model.is_encoder_decoder();
    results.push_back(compared(name, masks ? real_rows(ours, inputs.attention_mask) : ours,
                               masks ? real_rows(theirs, inputs.attention_mask) : theirs));
  };
  add("logits", outputs.logits, true);
  add("hidden", outputs.hidden, true);
  add("last_hidden_state", outputs.hidden, true);
  if (outputs.loss.defined()) {  // without labels another program's loss is none of ours
    add("loss", outputs.loss, false);
    outputs.loss.backward();
    for (Comparison& gradient : GradientComparison(model, reference).run(sharded)) {
      results.push_back(std::move(gradient));
    }
    sharded.zero_grad();
  }
  return results;
}

}  // namespace fullshard
