// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/products/adapted_layers.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "fullshard/nn/gradient_hook.h"
#include "fullshard/ops/device_operators.h"
#include "fullshard/ops/products/int8_rows.h"
#include "fullshard/ops/products/joined_rows.h"
#include "fullshard/ops/products/weight_gradient.h"

namespace fullshard::ops {

AdaptedLayers::AdaptedLayers(std::vector<LinearTerms> layers) : layers_(std::move(layers)) {
  for (const auto& layer : layers_) {
    num_outputs_ += layer.weight.size(0);
    if (layer.low_rank.a.defined()) num_ranks_ += layer.low_rank.a.size(0);
  }
}

template <class Use>
void AdaptedLayers::for_adapters(const Use& use) const {
  int64_t first_output = 0, first_rank = 0;
  for (size_t i = 0; i < layers_.size(); ++i) {
    const auto& a = layers_[i].low_rank.a;
    if (a.defined()) {
      use(i, first_output, first_rank);
      first_rank += a.size(0);
    }
    first_output += layers_[i].weight.size(0);
  }
}

std::vector<at::Tensor> AdaptedLayers::weights(at::ScalarType dtype) const {
  int64_t height = 0;
  for (const auto& layer : layers_) {
    if (layer.row_scales.defined()) height += layer.weight.size(0);
  }
  const auto& first = layers_.front().weight;
  const auto wide =
      height > 0 ? at::empty({height, first.size(1)}, first.options().dtype(dtype)) : at::Tensor();
  std::vector<at::Tensor> weights;
  int64_t next = 0;
  for (const auto& layer : layers_) {
    if (!layer.row_scales.defined()) {
      weights.push_back(layer.weight);
      continue;
    }
    weights.push_back(wide.narrow(0, next, layer.weight.size(0)));
    widen_rows_into(weights.back(), layer.weight, layer.row_scales);
    next += layer.weight.size(0);
  }
  return weights;
}

std::vector<at::Tensor> AdaptedLayers::biases() const {
  std::vector<at::Tensor> biases;
  for (const auto& layer : layers_) biases.push_back(layer.bias);
  return biases;
}

// A few rows: to copy them costs less than to read the wide rows once per layer.
at::Tensor AdaptedLayers::joined_a() const {
  std::vector<at::Tensor> all;
  for_adapters([&](size_t i, int64_t, int64_t) { all.push_back(layers_[i].low_rank.a); });
  const auto joined = joined_rows(all);
  return joined.defined() ? joined : at::cat(all, 0);
}

void AdaptedLayers::multiply_scales(const at::Tensor& narrow) const {
  std::vector<double> scales;
  for_adapters([&](size_t i, int64_t, int64_t) { scales.push_back(layers_[i].low_rank.scale); });
  at::Tensor own = narrow;
  if (std::ranges::all_of(scales, [&](double scale) { return scale == scales.front(); })) {
    if (scales.front() != 1) own.mul_(scales.front());
    return;
  }
  for_adapters([&](size_t i, int64_t, int64_t first_rank) {
    const LowRank& part = layers_[i].low_rank;
    own.narrow(1, first_rank, part.a.size(0)).mul_(part.scale);
  });
}

at::Tensor AdaptedLayers::narrow_rows(const at::Tensor& rows) const {
  auto narrow = at::empty({rows.size(0), num_ranks_}, rows.options());
  device_product(narrow, rows, joined_a().t());
  multiply_scales(narrow);
  return narrow;
}

void AdaptedLayers::add_to(const at::Tensor& packed, const at::Tensor& narrow) const {
  for_adapters([&](size_t i, int64_t first_output, int64_t first_rank) {
    const auto& b = layers_[i].low_rank.b;
    device_product(packed.narrow(1, first_output, b.size(0)),
                   narrow.narrow(1, first_rank, b.size(1)), b.t(), /*accumulate=*/true);
  });
}

at::Tensor AdaptedLayers::narrow_gradient(const at::Tensor& packed_gradient) const {
  auto gradient = at::empty({packed_gradient.size(0), num_ranks_}, packed_gradient.options());
  for_adapters([&](size_t i, int64_t first_output, int64_t first_rank) {
    const auto& b = layers_[i].low_rank.b;
    device_product(gradient.narrow(1, first_rank, b.size(1)),
                   packed_gradient.narrow(1, first_output, b.size(0)), b);
  });
  multiply_scales(gradient);
  return gradient;
}

void AdaptedLayers::add_rows_gradient(const at::Tensor& target,
                                      const at::Tensor& narrow_gradient) const {
  device_product(target, narrow_gradient, joined_a(), /*accumulate=*/true);
}

// One product for all of them, since most of its time is that of reading the rows.
AdaptedLayers::Parameters AdaptedLayers::a_gradients(const Parameters& parameters,
                                                     const at::Tensor& rows,
                                                     const at::Tensor& narrow_gradient) const {
  Parameters gradients(layers_.size());
  const auto wanted =
      std::ranges::count_if(parameters, [](const auto& parameter) { return parameter.defined(); });
  if (wanted == 0) return gradients;
  const auto whole = at::empty({num_ranks_, rows.size(1)}, rows.options().dtype(at::kFloat));
  device_product(whole, narrow_gradient.t(), rows);
  for_adapters([&](size_t i, int64_t, int64_t first_rank) {
    if (!parameters[i].defined()) return;
    const auto own = whole.narrow(0, first_rank, parameters[i].size(0));
    const auto sink = nn::open_gradient_sink(parameters[i]);
    if (at::Tensor target = sink.target; target.defined()) {
      sink.accumulate ? target.add_(own) : target.copy_(own);
    } else {
      gradients[i] = own.to(parameters[i].scalar_type());
    }
  });
  return gradients;
}

AdaptedLayers::Parameters AdaptedLayers::b_gradients(const Parameters& parameters,
                                                     const at::Tensor& narrow,
                                                     const at::Tensor& packed_gradient) const {
  Parameters gradients(layers_.size());
  for_adapters([&](size_t i, int64_t first_output, int64_t first_rank) {
    if (!parameters[i].defined()) return;
    const auto& b = layers_[i].low_rank.b;
    gradients[i] = weight_gradient(parameters[i], narrow.narrow(1, first_rank, b.size(1)),
                                   packed_gradient.narrow(1, first_output, b.size(0)));
  });
  return gradients;
}

}  // namespace fullshard::ops
