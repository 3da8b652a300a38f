// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/loss/cross_entropy_chunks.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "fullshard/ops/device_operators.h"
#include "fullshard/ops/kernels/cross_entropy_kernels.h"
#include "fullshard/ops/kernels/kernel_dispatch.h"
#include "fullshard/tensor/alike_turns.h"
#include "fullshard/tensor/parallel.h"

namespace fullshard::ops {
namespace {

// A chunk's logits: enough rows for fast products, few enough to stay small beside a model.
constexpr int64_t kChunkBytes = int64_t{32} << 20;
constexpr int64_t kDeviceChunkBytes = int64_t{512} << 20;
// What a GPU's matrix products like to begin at and to be cut into.
constexpr int64_t kDeviceColumns = 64, kDeviceRows = 128;

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

// Room for the logits of a chunk; on a GPU rows begin at aligned addresses, whatever the
// vocabulary.
at::Tensor make_buffer(const at::Tensor& hidden, int64_t rows, int64_t vocabulary) {
  if (!hidden.is_cuda()) return at::empty({rows, vocabulary}, hidden.options());
  return at::empty({rows, round_up(vocabulary, kDeviceColumns)}, hidden.options())
      .narrow(1, 0, vocabulary);
}

// Sums are in fp32 whatever the dtype.
at::TensorOptions wide_options(const at::Tensor& tensor) {
  return tensor.options().dtype(tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
}

bool is_single(const CrossEntropyProblem& problem) {
  return chunk_rows(problem) >= problem.hidden.size(0);
}

// The same as the kernel, for other devices and dtypes.
void composed_rows(at::Tensor logits, at::Tensor losses, const at::Tensor& labels,
                   const CrossEntropyOptions& options, bool wants_gradient) {
  const auto wide = logits.scalar_type() == at::kDouble ? logits : logits.to(at::kFloat);
  auto shares = at::log_softmax(wide, -1);
  const auto is_ignored = labels.eq(options.ignore_index);
  const auto places = labels.masked_fill(is_ignored, 0).unsqueeze(1);
  auto own = shares.gather(1, places).squeeze(1).neg() * (1 - options.label_smoothing);
  if (options.label_smoothing > 0) own = own - shares.mean(-1) * options.label_smoothing;
  losses.copy_(own.masked_fill(is_ignored, 0));
  if (!wants_gradient) return;
  shares.exp_().sub_(options.label_smoothing / static_cast<double>(logits.size(1)));
  const auto targets =
      at::empty(places.sizes(), shares.options()).fill_(options.label_smoothing - 1);
  shares.scatter_add_(1, places, targets);
  logits.copy_(shares.masked_fill_(is_ignored.unsqueeze(1), 0));
}

// Losses of a chunk; its logits become their gradient when that is wanted.
void chunk_losses(const at::Tensor& logits, const at::Tensor& losses, const at::Tensor& labels,
                  const CrossEntropyOptions& options, bool wants_gradient) {
  if (has_cuda_kernel(logits)) {
    return device_entropy(logits, losses, labels, options.ignore_index, options.label_smoothing,
                          wants_gradient);
  }
  if (!has_cpu_kernel(logits)) {
    return composed_rows(logits, losses, labels, options, wants_gradient);
  }
  const LabelTerms terms{options.ignore_index, static_cast<float>(options.label_smoothing)};
  const int64_t vocabulary = logits.size(1);
  with_stored_type(logits, [&]<class Stored>(Stored*) {
    auto* values = mutable_elements<Stored>(logits);
    auto* to = mutable_elements<float>(losses);
    const auto* own_labels = elements<int64_t>(labels);
    tensor::parallel_ranges(
        logits.size(0), rows_per_thread(vocabulary), [&](int64_t begin, int64_t end) {
          cross_entropy_rows(values + begin * vocabulary, to + begin, own_labels + begin,
                             end - begin, vocabulary, terms, wants_gradient);
        });
  });
}

void make_logits(at::Tensor logits, const CrossEntropyProblem& problem, const at::Tensor& hidden) {
  if (has_cuda_kernel({hidden, problem.weight, problem.bias})) {
    device_product_plus(logits, hidden, problem.weight.t(), problem.bias, {});
  } else if (problem.bias.defined()) {
    at::addmm_out(logits, problem.bias, hidden, problem.weight.t());
  } else {
    at::mm_out(logits, hidden, problem.weight.t());
  }
}

void add_product(at::Tensor sum, const at::Tensor& left, const at::Tensor& right, bool is_empty) {
  const bool same_dtype = sum.scalar_type() == left.scalar_type();
  if (has_cuda_kernel({left, right}) && (same_dtype || sum.scalar_type() == at::kFloat)) {
    device_product(sum, left, right, !is_empty);
  } else if (same_dtype && is_empty) {
    at::mm_out(sum, left, right);
  } else if (same_dtype) {
    sum.addmm_(left, right);
  } else if (is_empty) {
    sum.copy_(left.mm(right));
  } else {
    sum.add_(left.mm(right));
  }
}

void add_column_sums(at::Tensor sums, const at::Tensor& logits) {
  if (has_cuda_kernel(logits)) return device_column_sums({sums, /*accumulate=*/true}, logits);
  sums.add_(logits.sum(0, /*keepdim=*/false, sums.scalar_type()));
}

}  // namespace

// Chunks of equal size as far as possible. Each chunk reads and writes the whole weight gradient
// once: a quarter of the width in rows keeps that small beside the products.
int64_t chunk_rows(const CrossEntropyProblem& problem) {
  const int64_t num_rows = problem.hidden.size(0);
  if (num_rows == 0) return 0;
  if (problem.options.chunk_rows > 0) return std::min(problem.options.chunk_rows, num_rows);
  const auto row_bytes = problem.weight.size(0) * problem.hidden.element_size();
  const bool is_on_device = problem.hidden.is_cuda();
  const int64_t bytes = is_on_device ? kDeviceChunkBytes : kChunkBytes;
  const int64_t wanted =
      std::max({int64_t{1}, bytes / std::max<int64_t>(row_bytes, 1), problem.weight.size(1) / 4});
  const int64_t num_chunks = (num_rows + wanted - 1) / wanted;
  const int64_t rows = (num_rows + num_chunks - 1) / num_chunks;
  return is_on_device ? std::min(round_up(rows, kDeviceRows), num_rows) : rows;
}

int64_t bytes_for_weight_gradient(const CrossEntropyProblem& problem) {
  const auto& [hidden, weight, bias, labels, options] = problem;
  if (is_single(problem)) return hidden.size(0) * weight.size(0) * hidden.element_size();
  return weight.numel() * static_cast<int64_t>(wide_options(weight).dtype().itemsize());
}

CrossEntropySums run_chunks(const CrossEntropyProblem& problem, const CrossEntropyWanted& wanted,
                            const at::Tensor& weight_sum) {
  const auto& [all_hidden, weight, bias, labels, options] = problem;
  const int64_t num_rows = all_hidden.size(0), rows = chunk_rows(problem);
  const auto wide = wide_options(all_hidden);
  CrossEntropySums sums;
  sums.losses = at::empty({num_rows}, wide);
  if (wanted.hidden) sums.hidden = at::empty(all_hidden.sizes(), all_hidden.options());
  if (wanted.weight && weight_sum.defined()) {
    sums.weight = weight_sum;
  } else if (wanted.weight && !is_single(problem)) {
    sums.weight = at::empty(weight.sizes(), wide);
  }
  if (wanted.bias) sums.bias = at::zeros({weight.size(0)}, wide);
  const auto buffer = make_buffer(all_hidden, rows, weight.size(0));
  const int64_t num_chunks = rows > 0 ? (num_rows + rows - 1) / rows : 0;
  for (int64_t first = 0; first < num_rows; first += rows) {
    if (tensor::may_leave_out(first / rows, num_chunks)) continue;
    const int64_t count = std::min(rows, num_rows - first);
    const auto hidden = all_hidden.narrow(0, first, count);
    const auto logits = buffer.narrow(0, 0, count);
    make_logits(logits, problem, hidden);
    chunk_losses(logits, sums.losses.narrow(0, first, count), labels.narrow(0, first, count),
                 options, wanted.any());
    if (wanted.hidden) {
      add_product(sums.hidden.narrow(0, first, count), logits, weight, /*is_empty=*/true);
    }
    if (sums.weight.defined()) {
      add_product(sums.weight, logits.t(), hidden, first == 0);
    }
    if (wanted.bias) add_column_sums(sums.bias, logits);
  }
  if (num_rows == 0 && sums.weight.defined()) sums.weight.zero_();
  if (wanted.weight && !sums.weight.defined()) sums.kept = buffer;
  return sums;
}

}  // namespace fullshard::ops
