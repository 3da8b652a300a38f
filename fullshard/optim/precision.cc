// SPDX-License-Identifier: Apache-2.0
#include "fullshard/optim/precision.h"

#include <ATen/Context.h>

#include <algorithm>
#include <cctype>

#include "fullshard/base/error.h"

namespace fullshard {
namespace {

std::string lower(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(),
                         [](unsigned char letter) { return std::tolower(letter); });
  return result;
}

std::optional<at::ScalarType> find_dtype(std::string_view name) {
  std::string word = lower(name);
  if (word.starts_with("torch.")) word.erase(0, 6);
  if (word == "fp32" || word == "float32" || word == "float") return at::kFloat;
  if (word == "fp16" || word == "float16" || word == "half") return at::kHalf;
  if (word == "bf16" || word == "bfloat16") return at::kBFloat16;
  return std::nullopt;
}

Precision fp32() { return {.compute = at::kFloat, .master = at::kFloat, .buffer = at::kFloat}; }

Precision mixed(at::ScalarType dtype) {
  return {
      .compute = dtype, .master = at::kFloat, .buffer = dtype, .loss_scaling = dtype == at::kHalf};
}

void set_masters_and_gradients(Precision& precision, at::ScalarType dtype) {
  precision.master = dtype;
  precision.gradient = dtype;
}

void check_one_mode(const PrecisionKeys& keys) {
  const auto exclude = [](bool one, bool other, const char* names) {
    if (!one || !other) return;
    fail_as(ErrorKind::usage, "{}: a run has one precision; turn one of them off", names);
  };
  exclude(keys.fp16, keys.bf16, "fp16.enabled and bf16.enabled are both true");
  exclude(keys.fp16, !keys.amp.empty(), "fp16.enabled and amp.enabled are both true");
  exclude(keys.bf16, !keys.amp.empty(), "bf16.enabled and amp.enabled are both true");
}

void check_needs(bool is_set, const char* key, bool has, const char* needed) {
  if (!is_set || has) return;
  fail_as(ErrorKind::usage, "{} is true but {} is not; set {} too, or leave {} out", key, needed,
          needed, key);
}

void check_dependencies(const PrecisionKeys& keys) {
  check_needs(keys.fp16_master_weights_and_grads, "fp16.fp16_master_weights_and_grads", keys.fp16,
              "fp16.enabled");
  check_needs(keys.bf16_master_weights_and_grads, "bf16.bf16_master_weights_and_grads", keys.bf16,
              "bf16.enabled");
  check_needs(keys.bf16_optimizer_states, "bf16.bf16_optimizer_states",
              keys.bf16_master_weights_and_grads, "bf16.bf16_master_weights_and_grads");
}

Precision mode_of(const PrecisionKeys& keys) {
  check_one_mode(keys);
  check_dependencies(keys);
  if (!keys.amp.empty()) return Precision::amp(keys.amp);
  if (keys.fp16) return Precision::named("fp16");
  if (keys.fp8) return Precision::named("fp8");
  if (keys.bf16) return Precision::named("bf16");
  return Precision::named("no");
}

bool is_t5(std::string_view model_type) { return lower(model_type).ends_with("t5"); }

}  // namespace

Precision Precision::named(std::string_view name) {
  const auto word = lower(name);
  if (word == "no") return {};
  if (word == "fp32") return fp32();
  if (word == "bf16") return mixed(at::kBFloat16);
  if (word == "fp16") return mixed(at::kHalf);
  if (word == "fp8") {
    auto precision = mixed(at::kBFloat16);
    precision.products = ProductPrecision::fp8;
    return precision;
  }
  fail_as(ErrorKind::usage, "precision '{}': expected no, fp32, bf16, fp16 or fp8", name);
}

Precision Precision::amp(std::string_view level) {
  const auto word = lower(level);
  if (word == "o0") return fp32();
  if (word == "o1" || word == "o2") return mixed(at::kHalf);
  if (word == "o3") {
    auto pure = mixed(at::kHalf);
    set_masters_and_gradients(pure, at::kHalf);
    pure.loss_scaling = false;
    return pure;
  }
  fail_as(ErrorKind::usage, "amp.opt_level '{}': expected O0, O1, O2 or O3", level);
}

Precision Precision::from(const PrecisionKeys& keys) {
  auto precision = mode_of(keys);
  if (keys.fp16_master_weights_and_grads) set_masters_and_gradients(precision, at::kHalf);
  if (keys.bf16_master_weights_and_grads) set_masters_and_gradients(precision, at::kBFloat16);
  if (keys.bf16_optimizer_states) precision.optimizer_state = at::kBFloat16;
  if (keys.fp8 && keys.fp8_e4m3) precision.products = ProductPrecision::fp8_e4m3;
  if (!keys.communication_data_type.empty()) {
    precision.reduce = dtype_named("communication_data_type", keys.communication_data_type);
  }
  if (keys.grad_accum_dtype.empty()) return precision;
  const auto gradient = dtype_named("data_types.grad_accum_dtype", keys.grad_accum_dtype);
  if (precision.gradient.value_or(gradient) != gradient) {
    fail_as(ErrorKind::usage,
            "data_types.grad_accum_dtype is '{}', but {} keeps gradients in {}; leave one of them "
            "out",
            keys.grad_accum_dtype,
            !keys.amp.empty()                    ? "amp.opt_level O3"
            : keys.fp16_master_weights_and_grads ? "fp16.fp16_master_weights_and_grads"
                                                 : "bf16.bf16_master_weights_and_grads",
            *precision.gradient == at::kHalf ? "fp16" : "bf16");
  }
  precision.gradient = gradient;
  return precision;
}

void Precision::apply_to(ShardOptions& options) const {
  if (compute) options.param_dtype = compute;
  if (master) options.master_dtype = master;
  if (gradient) options.gradient_dtype = gradient;
  if (reduce) options.reduce_dtype = reduce;
  if (buffer) options.buffer_dtype = buffer;
  if (output) options.output_dtype = output;
  options.products = products;
}

at::ScalarType dtype_named(std::string_view key, std::string_view name) {
  if (const auto dtype = find_dtype(name)) return *dtype;
  fail_as(ErrorKind::usage, "{} '{}': expected fp32, fp16 or bf16", key, name);
}

void set_tf32(bool allowed) {
  auto& context = at::globalContext();
  context.setFloat32MatmulPrecision(allowed ? "high" : "highest");
  context.setAllowTF32CuDNN(allowed);
}

std::vector<std::string> precision_warnings(const Precision& precision,
                                            const std::optional<std::string>& config_dtype,
                                            std::string_view model_type) {
  std::vector<std::string> warnings;
  if (precision.compute != at::kHalf) return warnings;
  if (config_dtype && find_dtype(*config_dtype) == at::kBFloat16) {
    warnings.push_back(fmt::format(
        "fp16 with a model whose config says {}: it was trained in bf16, and what exceeds 65504 in "
        "it becomes infinite in fp16, so that the loss turns into NaN or the loss scale falls to "
        "its minimum; use bf16 or fp32",
        *config_dtype));
  }
  if (is_t5(model_type)) {
    warnings.push_back(fmt::format(
        "fp16 with a model of type {}: T5 was trained in bf16, and the activations of its "
        "feed-forward layers exceed 65504, the largest value of fp16, so that the loss turns into "
        "NaN; use bf16 or fp32",
        model_type));
  }
  return warnings;
}

}  // namespace fullshard
