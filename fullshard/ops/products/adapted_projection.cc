// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/products/adapted_projection.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "fullshard/ops/absent_tensor.h"
#include "fullshard/ops/device_operators.h"
#include "fullshard/ops/kernels/kernel_dispatch.h"
#include "fullshard/ops/kernels/matrix.h"
#include "fullshard/ops/last_use.h"
#include "fullshard/ops/products/adapted_layers.h"
#include "fullshard/ops/products/projection.h"

namespace fullshard::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// What makes the rows that layers read of the input.
enum class RowsBy : int64_t { nothing, norm, activation };

struct RowMaking {
  RowsBy by = RowsBy::nothing;
  double epsilon = 0;    // of a norm
  bool centred = false;  // likewise
  Activation kind = Activation::relu;
  ResultUse use = ResultUse::values;
};

// Tensors that the function is given, empty where absent: these, then kPerLayer of each layer.
constexpr size_t kGivenInput = 0, kGivenResidual = 1, kGivenNormWeight = 2, kGivenNormBias = 3,
                 kFirstLayer = 4;
constexpr size_t kWeight = 0, kBias = 1, kRowScales = 2, kA = 3, kB = 4, kPerLayer = 5;

size_t place_of(size_t layer, size_t part) { return kFirstLayer + layer * kPerLayer + part; }

AdaptedLayers layers_of(at::TensorList tensors, const std::vector<double>& scales) {
  std::vector<LinearTerms> layers;
  for (size_t i = 0; i < scales.size(); ++i) {
    const auto part = [&](size_t number) {
      return undefined_if_empty(tensors[i * kPerLayer + number]);
    };
    layers.push_back({.weight = part(kWeight),
                      .bias = part(kBias),
                      .low_rank = {.a = part(kA), .b = part(kB), .scale = scales[i]},
                      .row_scales = part(kRowScales)});
  }
  return AdaptedLayers(std::move(layers));
}

struct AdaptedProjectionFunction : torch::autograd::Function<AdaptedProjectionFunction> {
  // The packed outputs; after a norm the input, too.
  static variable_list forward(AutogradContext* context, at::TensorList tensors,
                               const RowMaking& making, const std::vector<double>& scales) {
    const auto layers = layers_of(tensors.slice(kFirstLayer), scales);
    const auto input = tensors[kGivenInput].contiguous();
    const auto residual = undefined_if_empty(tensors[kGivenResidual]);
    const auto weights = layers.weights(input.scalar_type());
    const bool is_made = making.by != RowsBy::nothing;
    const auto largest = is_made ? make_largest_for(input, weights) : at::Tensor();
    const auto rows =
        is_made ? at::empty(sizes_of_width(input, weights[0].size(1)), input.options()) : input;
    const NormTerms norm{undefined_if_empty(tensors[kGivenNormWeight]),
                         undefined_if_empty(tensors[kGivenNormBias]), making.epsilon,
                         making.centred};
    NormStatistics statistics;
    if (making.by == RowsBy::norm) statistics = device_norm(rows, input, norm, largest);
    if (making.by == RowsBy::activation) device_activate(rows, input, making.kind, largest);

    auto packed = at::empty(sizes_of_width(input, layers.num_outputs()), input.options());
    const bool is_read = making.use == ResultUse::values;
    const bool is_wide = making.by == RowsBy::activation && is_product_of_gate(input, weights[0]);
    const auto project_rows = is_wide ? project_wide : project;
    const auto maxima =
        is_read ? project_rows(as_matrix(packed), as_matrix(rows), weights, layers.biases(),
                               residual.defined() ? as_matrix(residual) : residual, largest)
                : maxima_of(as_matrix(rows), weights, largest);
    at::Tensor narrow;
    if (layers.has_adapters()) narrow = layers.narrow_rows(as_matrix(rows));
    if (narrow.defined() && is_read) layers.add_to(as_matrix(packed), narrow);
    const auto kept = is_made || layers.has_adapters() ? input : at::Tensor();
    variable_list saved{kept,        norm.weight,    norm.bias, statistics.mean, statistics.inverse,
                        maxima.rows, maxima.weights, narrow};
    for (const auto& tensor : tensors.slice(kFirstLayer)) {
      saved.push_back(undefined_if_empty(tensor));
    }
    context->save_for_backward(std::move(saved));
    context->saved_data["parameters"] = tensors.slice(kFirstLayer).vec();
    context->saved_data["scales"] = scales;
    context->saved_data["by"] = static_cast<int64_t>(making.by);
    context->saved_data["kind"] = static_cast<int64_t>(making.kind);
    context->saved_data["is_hybrid"] = maxima.is_hybrid;
    context->saved_data["sizes"] = input.sizes().vec();
    context->set_materialize_grads(false);
    if (making.by == RowsBy::norm) return {packed, tensors[kGivenInput].detach()};
    return {packed};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    refuse_second_derivative("adapted_projection");
    const auto saved = context->get_saved_variables();
    const bool may_overwrite = saved[kSavedInput].defined() && is_last_use(saved[kSavedInput]);
    const auto scales = context->saved_data["scales"].toDoubleVector();
    variable_list results(place_of(scales.size(), 0) + 2);
    const auto beside = gradients.size() > 1 ? gradients[1] : at::Tensor();
    if (!gradients[0].defined()) {
      results[kGivenInput] = beside;
      return results;
    }
    if (context->needs_input_grad(kGivenResidual)) results[kGivenResidual] = gradients[0];
    Backward pass(context, saved, scales, gradients[0]);
    pass.take_b(results);
    switch (RowsBy(context->saved_data["by"].toInt())) {
      case RowsBy::nothing:
        pass.through_nothing(results);
        break;
      case RowsBy::norm:
        pass.through_norm(results, beside);
        break;
      case RowsBy::activation:
        pass.through_activation(results, may_overwrite);
        break;
    }
    return results;
  }

 private:
  static constexpr size_t kSavedInput = 0, kSavedNormWeight = 1, kSavedNormBias = 2, kMean = 3,
                          kInverse = 4, kRowMaxima = 5, kWeightMaxima = 6, kNarrow = 7,
                          kSavedLayers = 8;

  class Backward {
   public:
    Backward(AutogradContext* context, const variable_list& saved,
             const std::vector<double>& scales, const at::Tensor& packed_gradient)
        : context_(context),
          saved_(saved),
          layers_(layers_of(at::TensorList(saved).slice(kSavedLayers), scales)),
          parameters_(context->saved_data["parameters"].toTensorVector()),
          gradient_(packed_gradient, {saved[kRowMaxima], saved[kWeightMaxima],
                                      context->saved_data["is_hybrid"].toBool()}) {
      if (layers_.has_adapters()) narrow_gradient_ = layers_.narrow_gradient(gradient_.matrix());
    }

    void take_b(variable_list& results) {
      if (!layers_.has_adapters()) return;
      place(results, kB, layers_.b_gradients(wanted(kB), saved_[kNarrow], gradient_.matrix()));
    }

    void through_nothing(variable_list& results) {
      if (layers_.has_adapters()) take_a(results, saved_[kSavedInput]);
      if (!context_->needs_input_grad(kGivenInput)) return;
      results[kGivenInput] =
          at::empty(context_->saved_data["sizes"].toIntVector(), gradient_.matrix().options());
      take_rows(results[kGivenInput]);
    }

    // The normalised rows serve first; then their gradient takes their place, and the input's that
    // one's.
    void through_norm(variable_list& results, const at::Tensor& beside) {
      const auto& input = saved_[kSavedInput];
      const NormTerms norm{.weight = saved_[kSavedNormWeight],
                           .bias = saved_[kSavedNormBias],
                           .centred = saved_[kMean].defined()};
      const NormStatistics statistics{saved_[kMean], saved_[kInverse]};
      const auto rows = at::empty(input.sizes(), input.options());
      if (wants(kA)) {
        device_norm_again(rows, input, norm, statistics);
        take_a(results, rows);
      }
      if (!context_->needs_input_grad(kGivenInput)) return;
      take_rows(rows);
      const auto largest = make_noted(rows);
      device_norm_gradient({rows, {}, {}, largest}, rows,
                           beside.defined() ? beside.contiguous() : beside, input, norm,
                           statistics);
      results[kGivenInput] = rows;
      if (largest.defined()) note_largest(rows, largest);
    }

    // First the gradient of the activated values, then the values themselves in its place.
    void through_activation(variable_list& results, bool may_overwrite) {
      const auto& input = saved_[kSavedInput];
      const auto kind = Activation(context_->saved_data["kind"].toInt());
      const auto activated = at::empty(
          sizes_of_width(input, layers_.layers().front().weight.size(1)), input.options());
      if (context_->needs_input_grad(kGivenInput)) {
        take_rows(activated);
        const auto to_input =
            may_overwrite ? input.detach() : at::empty(input.sizes(), input.options());
        const auto largest = make_noted(input);
        device_activate_gradient(to_input, activated, activated, input, kind, largest);
        results[kGivenInput] = to_input;
        if (largest.defined()) note_largest(to_input, largest);
      } else if (wants(kA)) {
        device_activate(activated, input, kind);
      }
      take_a(results, activated);
    }

   private:
    bool wants(size_t part) const {
      const auto all = wanted(part);
      return std::ranges::any_of(all, [](const auto& parameter) { return parameter.defined(); });
    }

    AdaptedLayers::Parameters wanted(size_t part) const {
      AdaptedLayers::Parameters parameters(layers_.layers().size());
      for (size_t i = 0; i < parameters.size(); ++i) {
        if (context_->needs_input_grad(place_of(i, part))) {
          parameters[i] = parameters_[i * kPerLayer + part];
        }
      }
      return parameters;
    }

    static void place(variable_list& results, size_t part,
                      const AdaptedLayers::Parameters& gradients) {
      for (size_t i = 0; i < gradients.size(); ++i) results[place_of(i, part)] = gradients[i];
    }

    void take_a(variable_list& results, const at::Tensor& rows) {
      if (!layers_.has_adapters()) return;
      place(results, kA, layers_.a_gradients(wanted(kA), as_matrix(rows), narrow_gradient_));
    }

    void take_rows(const at::Tensor& target) {
      gradient_.to_rows(as_matrix(target), layers_.weights(target.scalar_type()));
      if (layers_.has_adapters()) layers_.add_rows_gradient(as_matrix(target), narrow_gradient_);
    }

    at::Tensor make_noted(const at::Tensor& like) const {
      return gradient_.is_in_fp8() ? make_largest(like) : at::Tensor();
    }

    AutogradContext* context_;
    const variable_list& saved_;
    AdaptedLayers layers_;
    std::vector<at::Tensor> parameters_;
    ProjectionGradient gradient_;
    at::Tensor narrow_gradient_;
  };
};

variable_list apply_layers(const at::Tensor& input, const at::Tensor& residual,
                           const NormTerms& norm, const RowMaking& making,
                           const std::vector<LinearTerms>& layers) {
  variable_list tensors{input, residual, norm.weight, norm.bias};
  std::vector<double> scales;
  for (const auto& layer : layers) {
    for (const auto& tensor :
         {layer.weight, layer.bias, layer.row_scales, layer.low_rank.a, layer.low_rank.b}) {
      tensors.push_back(tensor);
    }
    scales.push_back(layer.low_rank.scale);
  }
  for (auto& tensor : tensors) tensor = empty_if_absent(tensor, input);
  return AdaptedProjectionFunction::apply(at::TensorList(tensors), making, scales);
}

// Of the rows' dtype, on their GPU, without a gradient; or absent.
bool is_frozen_vector(const at::Tensor& tensor, const at::Tensor& rows, int64_t numel) {
  return !tensor.defined() ||
         (has_cuda_kernel({rows, tensor}) && !tensor.requires_grad() && tensor.dim() == 1 &&
          tensor.is_contiguous() && tensor.size(0) == numel);
}

bool is_frozen_weight(const LinearTerms& layer, const at::Tensor& rows) {
  const auto& weight = layer.weight;
  if (weight.requires_grad() || weight.dim() != 2 || !weight.is_contiguous()) return false;
  if (!layer.row_scales.defined()) return has_cuda_kernel({rows, weight});
  return weight.scalar_type() == at::kChar && weight.device() == rows.device() &&
         layer.row_scales.is_contiguous();
}

bool is_simple_part(const LowRank& part, const at::Tensor& rows) {
  if (!part.a.defined()) return true;
  return part.dropout == 0 && has_cuda_kernel({rows, part.a, part.b}) && part.a.is_contiguous() &&
         part.b.is_contiguous();
}

}  // namespace

bool adapts_at_once(const at::Tensor& rows, const std::vector<LinearTerms>& layers,
                    const at::Tensor& residual) {
  if (!rows.defined() || rows.dim() == 0 || rows.numel() == 0) return false;
  if (!has_cuda_kernel({rows, residual})) return false;
  if (residual.defined() &&
      residual.sizes() != sizes_of_width(rows, layers.front().weight.size(0))) {
    return false;
  }
  return std::ranges::all_of(layers, [&](const LinearTerms& layer) {
    return is_frozen_weight(layer, rows) &&
           is_frozen_vector(layer.bias, rows, layer.weight.size(0)) &&
           is_simple_part(layer.low_rank, rows);
  });
}

bool adapts_at_once(const at::Tensor& input, const NormTerms& norm,
                    const std::vector<LinearTerms>& layers) {
  return adapts_at_once(input, layers) && norm.weight.defined() &&
         is_frozen_vector(norm.weight, input, input.size(-1)) &&
         is_frozen_vector(norm.bias, input, input.size(-1));
}

at::Tensor adapted_linear(const at::Tensor& input, const LinearTerms& layer,
                          const at::Tensor& residual) {
  return apply_layers(input, residual, {}, {}, {layer}).front();
}

NormProjection adapted_norm_projection(const at::Tensor& input, const NormTerms& norm,
                                       const std::vector<LinearTerms>& layers) {
  auto made =
      apply_layers(input, {}, norm,
                   {.by = RowsBy::norm, .epsilon = norm.epsilon, .centred = norm.centred}, layers);
  return {{.packed = made[0]}, made[1]};
}

at::Tensor adapted_activated_projection(const at::Tensor& packed, Activation kind,
                                        const LinearTerms& layer, const at::Tensor& residual,
                                        ResultUse use) {
  return apply_layers(packed, residual, {}, {.by = RowsBy::activation, .kind = kind, .use = use},
                      {layer})
      .front();
}

}  // namespace fullshard::ops
