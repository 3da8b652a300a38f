// SPDX-License-Identifier: Apache-2.0
// libtorch's fused attention of GPUs, computed by the formula in fp64. What its kernels refuse is
// refused here with their words; nothing is dropped.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>

#include "fullshard/base/error.h"
#include "tests/stand_in/device/device_streams.h"
#include "tests/stand_in/device/operators.h"

namespace fullshard::stand_in {
namespace {

constexpr int64_t kTogether = 8;  // elements of 16 bits that kernels read at a time

void check_dense(const at::Tensor& tensor, const char* name) {
  check(tensor.stride(-1) == 1, "{}: last dimension must be contiguous", name);
}

void check_heads(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) {
  check_dense(query, "query");
  check_dense(key, "key");
  check_dense(value, "value");
  check(query.size(-1) % kTogether == 0, "head width {} is no multiple of {}", query.size(-1),
        kTogether);
}

void check_bias(const at::Tensor& bias) {
  check_dense(bias, "(*bias)");
  for (int64_t dim = 0; dim + 1 < bias.dim(); ++dim) {
    check(bias.size(dim) == 1 || bias.stride(dim) % kTogether == 0,
          "attn_bias is not correctly aligned (stride {} of dimension {})", bias.stride(dim), dim);
  }
}

struct Attention {
  at::Tensor query, key, value;  // [batch, heads, sequence, D]
  at::Tensor bias;
  bool causal = false;
  double scale = 1;
};

Attention seen_inside(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                      const std::optional<at::Tensor>& bias, bool causal,
                      std::optional<double> scale) {
  const auto wide = [](const at::Tensor& tensor) { return inside(tensor).to(at::kDouble); };
  const int64_t shared = query.size(1) / key.size(1);
  return {.query = wide(query),
          .key = wide(key).repeat_interleave(shared, 1),
          .value = wide(value).repeat_interleave(shared, 1),
          .bias = bias && bias->defined() ? wide(*bias) : at::Tensor(),
          .causal = causal,
          .scale = scale.value_or(1 / std::sqrt(static_cast<double>(query.size(-1))))};
}

at::Tensor scores_of(const Attention& given) {
  auto scores = at::matmul(given.query, given.key.transpose(-1, -2)) * given.scale;
  if (given.bias.defined()) scores = scores + given.bias;
  if (!given.causal) return scores;
  const auto hidden = at::ones({scores.size(-2), scores.size(-1)}, at::kBool).triu(1);
  return scores.masked_fill(hidden, -std::numeric_limits<double>::infinity());
}

struct Gradients {
  at::Tensor query, key, value, bias;
};

// Those of shared key heads are added up for each of them.
Gradients gradients_of(const Attention& given, const at::Tensor& output_gradient,
                       int64_t num_kv_heads) {
  const auto shares = at::softmax(scores_of(given), -1);
  const auto output = at::matmul(shares, given.value);
  const auto of_shares = at::matmul(output_gradient, given.value.transpose(-1, -2));
  const auto of_scores = shares * (of_shares - (output_gradient * output).sum(-1, true));
  const auto joined = [&](const at::Tensor& heads) {
    return heads.unflatten(1, {num_kv_heads, -1}).sum(2);
  };
  return {at::matmul(of_scores, given.key) * given.scale,
          joined(at::matmul(of_scores.transpose(-1, -2), given.query) * given.scale),
          joined(at::matmul(shares.transpose(-1, -2), output_gradient)), of_scores};
}

void give(const Work& work) { Streams::instance().submit(Streams::current(), work); }

at::Tensor log_sums_for(const at::Tensor& query) {
  return at::empty({query.size(0), query.size(1), query.size(2)},
                   query.options().dtype(at::kFloat));
}

void attend(const at::Tensor& output, const at::Tensor& log_sums, const at::Tensor& query,
            const at::Tensor& key, const at::Tensor& value, const std::optional<at::Tensor>& bias,
            bool causal, std::optional<double> scale) {
  give([=] {
    const auto given = seen_inside(query, key, value, bias, causal, scale);
    const auto scores = scores_of(given);
    inside(output).copy_(at::matmul(at::softmax(scores, -1), given.value));
    inside(log_sums).copy_(at::logsumexp(scores, {-1}));
  });
}

// The output is laid out as libtorch's: sequences before heads.
at::Tensor output_like(const at::Tensor& query) {
  return at::empty({query.size(0), query.size(2), query.size(1), query.size(3)}, query.options())
      .transpose(1, 2);
}

at::Tensor number_for(const at::Tensor& query) {
  return at::empty({}, query.options().dtype(at::kLong)).zero_();
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> efficient(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const std::optional<at::Tensor>& bias, bool, double dropout, bool causal,
    std::optional<double> scale) {
  check(dropout == 0, "stand-in device: attention drops nothing");
  check_heads(query, key, value);
  if (bias) check_bias(*bias);
  auto output = output_like(query);
  auto log_sums = log_sums_for(query);
  attend(output, log_sums, query, key, value, bias, causal, scale);
  return {output, log_sums, number_for(query), number_for(query)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> efficient_backward(
    const at::Tensor& output_gradient, const at::Tensor& query, const at::Tensor& key,
    const at::Tensor& value, const at::Tensor& bias, const at::Tensor&, const at::Tensor&,
    const at::Tensor&, const at::Tensor&, double, std::array<bool, 4> wanted, bool causal,
    std::optional<double> scale) {
  auto of_query = at::empty_like(query), of_key = at::empty_like(key);
  auto of_value = at::empty_like(value);
  const auto of_bias =
      wanted[3] && bias.defined()
          ? at::empty({query.size(0), query.size(1), query.size(2), key.size(2)}, query.options())
          : at::Tensor();
  give([=] {
    const auto given = seen_inside(query, key, value, bias, causal, scale);
    const auto made = gradients_of(given, inside(output_gradient).to(at::kDouble), key.size(1));
    inside(of_query).copy_(made.query);
    inside(of_key).copy_(made.key);
    inside(of_value).copy_(made.value);
    if (of_bias.defined()) inside(of_bias).copy_(made.bias);
  });
  return {of_query, of_key, of_value, of_bias};
}

using FlashResults = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt,
                                c10::SymInt, at::Tensor, at::Tensor, at::Tensor>;

FlashResults flash(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                   double dropout, bool causal, bool, std::optional<double> scale) {
  check(dropout == 0, "stand-in device: attention drops nothing");
  check_heads(query, key, value);
  auto output = output_like(query);
  auto log_sums = log_sums_for(query);
  attend(output, log_sums, query, key, value, std::nullopt, causal, scale);
  return {output,      log_sums,          at::Tensor(),      at::Tensor(), query.size(2),
          key.size(2), number_for(query), number_for(query), at::Tensor()};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> flash_backward(
    const at::Tensor& output_gradient, const at::Tensor& query, const at::Tensor& key,
    const at::Tensor& value, const at::Tensor& output, const at::Tensor& log_sums,
    const at::Tensor&, const at::Tensor&, c10::SymInt, c10::SymInt, double dropout, bool causal,
    const at::Tensor& seed, const at::Tensor& offset, std::optional<double> scale) {
  const auto made =
      efficient_backward(output_gradient, query, key, value, {}, output, log_sums, seed, offset,
                         dropout, {true, true, true, false}, causal, scale);
  return {std::get<0>(made), std::get<1>(made), std::get<2>(made)};
}

// Documents side by side, [tokens, heads, D]: attention of each by itself. The arguments that come
// behind the scale differ between releases of libtorch.
struct Documents {
  at::Tensor query, key, value, starts;
  bool causal = false;
  std::optional<double> scale = {};

  template <class Use>
  void for_each(const Use& use) const {
    const auto borders = inside(starts).to(at::kLong);
    for (int64_t i = 0; i + 1 < borders.numel(); ++i) {
      const int64_t first = borders[i].item<int64_t>(), last = borders[i + 1].item<int64_t>();
      const auto own = [&](const at::Tensor& rows) {
        return rows.narrow(0, first, last - first).unsqueeze(0).transpose(1, 2);
      };
      if (last > first) use(own, seen_inside(own(query), own(key), own(value), {}, causal, scale));
    }
  }
};

void flash_documents(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto arguments = torch::jit::pop(*stack, op.schema().arguments().size());
  const auto tensor = [&](size_t i) { return arguments[i].toTensor(); };
  check(arguments[7].toDouble() == 0, "stand-in device: attention drops nothing");
  check_heads(tensor(0), tensor(1), tensor(2));
  check(tensor(3).is_cuda(), "cu_seqlens_q must be on CUDA");
  const Documents documents{tensor(0),
                            tensor(1),
                            tensor(2),
                            tensor(3),
                            arguments[8].toBool(),
                            arguments[10].toOptional<double>()};
  const auto output = at::empty(tensor(0).sizes(), tensor(0).options());
  give([=] {
    documents.for_each([&](const auto& own, const Attention& given) {
      own(inside(output)).copy_(at::matmul(at::softmax(scores_of(given), -1), given.value));
    });
  });
  const auto log_sums =
      at::empty({tensor(0).size(1), tensor(0).size(0)}, tensor(0).options().dtype(at::kFloat));
  torch::jit::push(*stack, output, log_sums, number_for(output), number_for(output), at::Tensor());
}

void flash_documents_backward(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto arguments = torch::jit::pop(*stack, op.schema().arguments().size());
  const auto tensor = [&](size_t i) { return arguments[i].toTensor(); };
  const Documents documents{tensor(1),
                            tensor(2),
                            tensor(3),
                            tensor(6),
                            arguments[11].toBool(),
                            arguments[14].toOptional<double>()};
  const auto output_gradient = tensor(0);
  const auto of_query = at::empty_like(tensor(1)), of_key = at::empty_like(tensor(2));
  const auto of_value = at::empty_like(tensor(3));
  give([=] {
    documents.for_each([&](const auto& own, const Attention& given) {
      const auto made =
          gradients_of(given, own(inside(output_gradient)).to(at::kDouble), documents.key.size(1));
      own(inside(of_query)).copy_(made.query);
      own(inside(of_key)).copy_(made.key);
      own(inside(of_value)).copy_(made.value);
    });
  });
  torch::jit::push(*stack, of_query, of_key, of_value);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("_flash_attention_forward",
               torch::CppFunction::makeFromBoxedFunction<&flash_documents>());
  library.impl("_flash_attention_backward",
               torch::CppFunction::makeFromBoxedFunction<&flash_documents_backward>());
  library.impl("_scaled_dot_product_efficient_attention", efficient);
  library.impl("_scaled_dot_product_efficient_attention_backward", efficient_backward);
  library.impl("_scaled_dot_product_flash_attention", flash);
  library.impl("_scaled_dot_product_flash_attention_backward", flash_backward);
}

}  // namespace fullshard::stand_in
