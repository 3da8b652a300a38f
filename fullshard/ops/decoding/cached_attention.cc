// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/decoding/cached_attention.h"

#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "fullshard/base/error.h"
#include "fullshard/ops/attention/attention.h"
#include "fullshard/ops/decoding/device_decoding.h"
#include "fullshard/ops/kernels/cached_attention_kernels.h"
#include "fullshard/ops/kernels/kernel_dispatch.h"

namespace fullshard::ops {
namespace {

// The keys that a row's only query sees: [begin, end).
struct SeenKeys {
  std::vector<int64_t> begins;
  std::vector<int64_t> ends;
};

SeenKeys seen_by_last(const CachePlaces& places, int64_t window) {
  SeenKeys seen;
  for (const int64_t start : places.starts) {
    seen.ends.push_back(start + 1);
    seen.begins.push_back(window > 0 ? std::max<int64_t>(start + 1 - window, 0) : 0);
  }
  return seen;
}

bool attends_on_cpu(const at::Tensor& query, const at::Tensor& keys, const at::Tensor& values,
                    const at::Tensor& bias) {
  return query.size(1) == 1 && has_cpu_kernel({query, keys, values}) &&
         query.scalar_type() == at::kFloat && keys.is_contiguous() && values.is_contiguous() &&
         (!bias.defined() || bias.size(0) == 1);
}

double score_scale_of(const at::Tensor& query, const CachedAttentionOptions& options) {
  return options.scale.value_or(1 / std::sqrt(static_cast<double>(query.size(3))));
}

// One query per row and head, each over its own range of the cache.
at::Tensor attend_on_cpu(const at::Tensor& given_query, const at::Tensor& keys,
                         const at::Tensor& values, const SeenKeys& seen,
                         const CachedAttentionOptions& options) {
  const auto query = given_query.contiguous();
  const int64_t num_rows = query.size(0), num_heads = query.size(2), width = query.size(3);
  const int64_t sharing = num_heads / keys.size(1), capacity = keys.size(2);
  auto output = at::empty({num_rows, 1, num_heads * width}, query.options());
  const auto bias =
      options.bias.defined() ? options.bias.to(query.scalar_type()).contiguous() : at::Tensor();
  const int64_t most_keys = *std::max_element(seen.ends.begin(), seen.ends.end());
  const auto scale = static_cast<float>(score_scale_of(query, options));
  const auto attend_head = [&](int64_t place, float* scratch) {
    const int64_t row = place / num_heads, head = place % num_heads;
    const int64_t begin = seen.begins[row];
    const int64_t first = ((row * keys.size(1) + head / sharing) * capacity + begin) * width;
    attend({.output = output.mutable_data_ptr<float>() + place * width,
            .query = query.const_data_ptr<float>() + place * width,
            .keys = keys.const_data_ptr<float>() + first,
            .values = values.const_data_ptr<float>() + first,
            .bias = bias.defined() ? bias.const_data_ptr<float>() + head * bias.size(3) + begin
                                   : nullptr,
            .num_keys = seen.ends[row] - begin,
            .width = width,
            .scale = scale,
            .scratch = scratch});
  };
  const int64_t heads_per_thread = kElementsPerThread / (most_keys * width) + 1;
  at::parallel_for(0, num_rows * num_heads, heads_per_thread, [&](int64_t begin, int64_t end) {
    std::vector<float> scratch(static_cast<size_t>(most_keys + 2 * width));
    for (int64_t place = begin; place < end; ++place) attend_head(place, scratch.data());
  });
  return output;
}

at::Tensor by_sequence(const at::Tensor& cache, int64_t num_columns) {
  return cache.narrow(2, 0, num_columns).transpose(1, 2);
}

void store_row_on_cpu(const at::Tensor& cache, const at::Tensor& tokens, int64_t row,
                      int64_t column) {
  const auto bytes = static_cast<size_t>(tokens.size(3) * tokens.element_size());
  const auto* from = static_cast<const char*>(tokens.const_data_ptr());
  auto* to = static_cast<char*>(cache.mutable_data_ptr());
  const int64_t num_heads = tokens.size(2), capacity = cache.size(2);
  for (int64_t head = 0; head < num_heads; ++head) {
    const int64_t line = (row * num_heads + head) * capacity + column;
    std::memcpy(to + line * static_cast<int64_t>(bytes),
                from + (row * num_heads + head) * static_cast<int64_t>(bytes), bytes);
  }
}

}  // namespace

int64_t CachePlaces::num_columns() const {
  return starts.empty() ? 0 : *std::max_element(starts.begin(), starts.end()) + count;
}

bool CachePlaces::start_alike() const {
  return std::ranges::all_of(starts, [this](int64_t start) { return start == starts.front(); });
}

CachePlaces make_places(std::vector<int64_t> starts, int64_t count, at::Device device,
                        const at::Tensor& positions) {
  CachePlaces places{.starts = std::move(starts), .count = count};
  check(
      count == 1 || places.start_alike(),
      "cached attention: {} tokens at a time for rows that hold different numbers of tokens; give "
      "one at a time",
      count);
  places.positions = positions;
  if (positions.defined()) return places;
  const auto own = at::tensor(places.starts, at::TensorOptions().dtype(at::kLong)).unsqueeze(1);
  places.positions = (own + at::arange(count, own.options())).to(device);
  return places;
}

void store_in_cache(const at::Tensor& cache, const at::Tensor& tokens, const CachePlaces& places) {
  if (places.start_alike()) {
    cache.narrow(2, places.starts.front(), places.count).copy_(tokens.transpose(1, 2));
    return;
  }
  if (cache.is_cpu() && cache.is_contiguous() && cache.scalar_type() == tokens.scalar_type()) {
    const auto dense = tokens.contiguous();
    for (int64_t row = 0; row < places.num_rows(); ++row) {
      store_row_on_cpu(cache, dense, row, places.starts[row]);
    }
    return;
  }
  const auto column = places.positions.view({-1, 1, 1, 1})
                          .expand({tokens.size(0), tokens.size(2), 1, tokens.size(3)});
  cache.scatter_(2, column, tokens.transpose(1, 2).to(cache.scalar_type()));
}

at::Tensor cached_attention(const at::Tensor& query, const at::Tensor& keys,
                            const at::Tensor& values, const CachePlaces& places,
                            const CachedAttentionOptions& options) {
  if (attends_on_cpu(query, keys, values, options.bias)) {
    return attend_on_cpu(query, keys, values, seen_by_last(places, options.window), options);
  }
  const int64_t num_columns = places.num_columns();
  AttentionOptions general;
  general.scale = options.scale;
  general.bias = options.bias;
  if (places.start_alike()) {
    general.causal = true;
    general.window = options.window;
  } else {
    const auto columns = at::arange(num_columns, places.positions.options()).unsqueeze(0);
    auto visible = columns.le(places.positions);
    if (options.window > 0) {
      visible = visible & columns.gt(places.positions - options.window);
    }
    general.padding_mask = visible;
  }
  return attention(query, by_sequence(keys, num_columns), by_sequence(values, num_columns), general)
      .flatten(2);
}

at::Tensor step_attention(const Projected& rows, const SelfAttentionHeads& heads,
                          const RotaryTable* rotary, const at::Tensor& keys,
                          const at::Tensor& values, const CachePlaces& places,
                          const CachedAttentionOptions& options) {
  if (!rows.packed.defined() || places.count != 1 || !keys.defined() || options.bias.defined()) {
    return {};
  }
  const StepAttention step{
      .rows = rows.packed,
      .keys = keys,
      .values = values,
      .positions = places.positions,
      .rotary = rotary,
      .num_heads = heads.num_heads,
      .window = options.window,
      .scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(keys.size(3))))};
  if (!has_device_step_attention(step)) return {};
  auto output =
      at::empty({rows.packed.size(0), 1, heads.num_heads * keys.size(3)}, rows.packed.options());
  device_step_attention(output, step);
  return output;
}

at::Tensor complete_attention(const at::Tensor& query, const at::Tensor& keys,
                              const at::Tensor& values, const std::vector<int64_t>& lengths,
                              const CachedAttentionOptions& options) {
  if (attends_on_cpu(query, keys, values, options.bias)) {
    const SeenKeys seen{std::vector<int64_t>(lengths.size(), 0), lengths};
    return attend_on_cpu(query, keys, values, seen, options);
  }
  const int64_t num_columns = *std::max_element(lengths.begin(), lengths.end());
  AttentionOptions general;
  general.scale = options.scale;
  general.bias = options.bias;
  const auto ends = at::tensor(lengths, at::TensorOptions().dtype(at::kLong)).to(query.device());
  general.padding_mask = at::arange(num_columns, ends.options()).unsqueeze(0).lt(ends.unsqueeze(1));
  return attention(query, by_sequence(keys, num_columns), by_sequence(values, num_columns), general)
      .flatten(2);
}

}  // namespace fullshard::ops
