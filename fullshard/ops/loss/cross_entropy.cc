// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/loss/cross_entropy.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "fullshard/nn/gradient_hook.h"
#include "fullshard/ops/kernels/kernel_dispatch.h"
#include "fullshard/ops/last_use.h"
#include "fullshard/ops/loss/cross_entropy_chunks.h"
#include "fullshard/ops/products/weight_gradient.h"

namespace fullshard {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Problem = ops::CrossEntropyProblem;
using Wanted = ops::CrossEntropyWanted;
using Sums = ops::CrossEntropySums;

// Where the weight's gradient is made: its sink opens in backward only, while the logits exist in
// forward. With one chunk the gradient of its logits is kept, and the product waits for backward.
// With several the products are summed in forward into a tensor of the weight's size: to keep all
// gradients of logits is what the chunks avoid. Where either would hold too much, forward computes
// the loss only and backward makes the logits again: four products instead of three.
bool can_keep(const Problem& problem, const Wanted& wanted) {
  auto most = problem.options.largest_kept_bytes;
  if (most < 0) most = problem.hidden.is_cuda() ? int64_t{2} << 30 : int64_t{256} << 20;
  return !wanted.weight || ops::bytes_for_weight_gradient(problem) <= most;
}

at::Tensor deliver(const nn::GradientSink& sink, const at::Tensor& sum, const at::Tensor& factor,
                   at::ScalarType dtype) {
  if (!sink.target.defined()) return (sum * factor).to(dtype);
  at::Tensor target = sink.target;
  if (!sink.accumulate) {
    at::mul_out(target, sum, factor);
  } else if (target.scalar_type() == sum.scalar_type()) {
    target.addcmul_(sum, factor);
  } else {
    target.add_(sum * factor);
  }
  return {};
}

// The sum itself becomes the gradient where that saves a copy of its size.
at::Tensor hand_over(at::Tensor sum, const at::Tensor& parameter, const at::Tensor& factor) {
  if (!sum.is_cuda() || !ops::is_last_backward()) {
    return deliver(nn::open_gradient_sink(parameter), sum, factor, parameter.scalar_type());
  }
  sum.mul_(factor);
  if (nn::give_gradient(parameter, sum)) return {};
  return deliver(nn::open_gradient_sink(parameter), sum, at::ones({}, factor.options()),
                 parameter.scalar_type());
}

// What backward hands on: sums that the factor is still missing in, and the weight's gradient,
// undefined when it went into the sink.
struct EntropyGradients {
  at::Tensor hidden_sum, weight, bias_sum;
};

EntropyGradients take_kept(const Sums& sums, const at::Tensor& hidden, const Wanted& wanted,
                           const at::Tensor& parameter, const at::Tensor& factor) {
  EntropyGradients result{sums.hidden, {}, sums.bias};
  if (wanted.weight && sums.kept.defined()) {
    result.weight =
        ops::weight_gradient(parameter, (hidden * factor).to(hidden.scalar_type()), sums.kept);
  } else if (wanted.weight) {
    result.weight = hand_over(sums.weight, parameter, factor);
  }
  return result;
}

// The weight's gradient is summed in the sink itself where that is empty and wide enough.
EntropyGradients compute_again(const Problem& problem, const Wanted& wanted,
                               const at::Tensor& parameter, const at::Tensor& factor) {
  nn::GradientSink sink;
  at::Tensor sum;
  if (wanted.weight) {
    sink = nn::open_gradient_sink(parameter);
    const bool is_fit = sink.target.defined() && !sink.accumulate &&
                        sink.target.scalar_type() == factor.scalar_type();
    sum = is_fit ? sink.target
                 : at::empty(parameter.sizes(), parameter.options().dtype(factor.scalar_type()));
  }
  const auto sums = ops::run_chunks(problem, wanted, sum);
  EntropyGradients result{sums.hidden, {}, sums.bias};
  if (wanted.weight) result.weight = deliver(sink, sum, factor, parameter.scalar_type());
  return result;
}

struct CrossEntropyFunction : torch::autograd::Function<CrossEntropyFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& hidden,
                            const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                            const at::Tensor& labels, const CrossEntropyOptions& options,
                            const Wanted& wanted) {
    Problem problem{hidden, weight, bias.value_or(at::Tensor()), labels, options};
    if (options.scale != 1) problem.hidden = hidden * options.scale;
    const bool is_kept = can_keep(problem, wanted);
    const auto sums = ops::run_chunks(problem, is_kept ? wanted : Wanted{});
    const auto dtype = sums.losses.scalar_type();
    const auto count = labels.ne(options.ignore_index).sum().clamp_min(1).to(dtype);
    // Everything large as a saved variable: those are freed when backward is done.
    if (is_kept) {
      const auto own_hidden = sums.kept.defined() ? problem.hidden : at::Tensor();
      context->save_for_backward(
          {own_hidden, sums.hidden, sums.weight, sums.bias, sums.kept, count});
    } else {
      context->save_for_backward({problem.hidden, weight, problem.bias, labels, count});
    }
    context->saved_data["is_kept"] = is_kept;
    context->saved_data["parameter"] = weight;
    context->saved_data["ignore_index"] = options.ignore_index;
    context->saved_data["label_smoothing"] = options.label_smoothing;
    context->saved_data["chunk_rows"] = options.chunk_rows;
    context->saved_data["scale"] = options.scale;
    return (sums.losses.sum(at::kDouble) / count).to(dtype);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    ops::refuse_second_derivative("linear_cross_entropy");
    const Wanted wanted{.hidden = context->needs_input_grad(0),
                        .weight = context->needs_input_grad(1),
                        .bias = context->needs_input_grad(2)};
    const auto& parameter = context->saved_data["parameter"].toTensor();
    const auto scale = context->saved_data["scale"].toDouble();
    const auto saved = context->get_saved_variables();
    const auto factor = gradients[0] / saved.back();
    const auto own = take(context, saved, wanted, parameter, factor);
    variable_list result(6);
    if (wanted.hidden) {
      result[0] = (own.hidden_sum * (factor * scale)).to(own.hidden_sum.scalar_type());
    }
    result[1] = own.weight;
    if (wanted.bias) result[2] = (own.bias_sum * factor).to(parameter.scalar_type());
    return result;
  }

 private:
  static EntropyGradients take(AutogradContext* context, const variable_list& saved,
                               const Wanted& wanted, const at::Tensor& parameter,
                               const at::Tensor& factor) {
    if (context->saved_data["is_kept"].toBool()) {
      const Sums sums{{}, saved[1], saved[2], saved[3], saved[4]};
      return take_kept(sums, saved[0], wanted, parameter, factor);
    }
    const CrossEntropyOptions options{
        .ignore_index = context->saved_data["ignore_index"].toInt(),
        .label_smoothing = context->saved_data["label_smoothing"].toDouble(),
        .chunk_rows = context->saved_data["chunk_rows"].toInt()};
    const Problem problem{saved[0], saved[1], saved[2], saved[3], options};
    return compute_again(problem, wanted, parameter, factor);
  }
};

void check_entropy_shapes(const at::Tensor& hidden, const at::Tensor& weight,
                          const at::Tensor& bias, const at::Tensor& labels) {
  check(hidden.dim() > 0 && weight.dim() == 2 && hidden.size(-1) == weight.size(1),
        "linear_cross_entropy: hidden has width {}, the weight {}; they must agree",
        hidden.dim() > 0 ? hidden.size(-1) : 0, weight.size(-1));
  check(labels.sizes() == hidden.sizes().slice(0, hidden.dim() - 1),
        "linear_cross_entropy: {} labels for {} rows; labels have hidden's shape without the last "
        "dimension",
        labels.numel(), hidden.numel() / std::max<int64_t>(hidden.size(-1), 1));
  check(labels.device() == hidden.device(),
        "linear_cross_entropy: labels lie on {}, hidden on {}; move the labels there first",
        labels.device().str(), hidden.device().str());
  check(!bias.defined() || bias.numel() == weight.size(0),
        "linear_cross_entropy: the bias has {} elements, the weight {} rows; they must agree",
        bias.defined() ? bias.numel() : 0, weight.size(0));
}

// An accelerator's labels are not looked at: that would wait for it.
void check_labels(const at::Tensor& labels, int64_t vocabulary, int64_t ignore_index) {
  if (!labels.is_cpu()) return;
  const auto* values = ops::elements<int64_t>(labels);
  for (int64_t i = 0; i < labels.numel(); ++i) {
    const bool is_known = values[i] >= 0 && values[i] < vocabulary;
    if (is_known || values[i] == ignore_index) continue;
    fail_as(ErrorKind::input,
            "linear_cross_entropy: label {} of row {} is outside the vocabulary; expected 0 to {}, "
            "or {} for none",
            values[i], i, vocabulary - 1, ignore_index);
  }
}

void check_entropy_options(const CrossEntropyOptions& options) {
  check(options.label_smoothing >= 0 && options.label_smoothing <= 1,
        "linear_cross_entropy: label_smoothing is {}; expected 0 to 1", options.label_smoothing);
  check(options.chunk_rows >= 0,
        "linear_cross_entropy: chunk_rows is {}; expected 0 (chosen by size) or more",
        options.chunk_rows);
}

}  // namespace

at::Tensor linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight,
                                const at::Tensor& bias, const at::Tensor& labels,
                                const CrossEntropyOptions& options) {
  check_entropy_shapes(hidden, weight, bias, labels);
  check_entropy_options(options);
  const auto flat_labels = labels.reshape({-1}).to(at::kLong).contiguous();
  check_labels(flat_labels, weight.size(0), options.ignore_index);
  const auto rows = hidden.reshape({-1, hidden.size(-1)});
  const bool has_gradients = at::GradMode::is_enabled();
  const Wanted wanted{.hidden = has_gradients && hidden.requires_grad(),
                      .weight = has_gradients && weight.requires_grad(),
                      .bias = has_gradients && bias.defined() && bias.requires_grad()};
  return CrossEntropyFunction::apply(rows, weight,
                                     bias.defined() ? std::optional(bias) : std::nullopt,
                                     flat_labels, options, wanted);
}

}  // namespace fullshard
