// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/shm/shm_collectives.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstring>

#include "fullshard/base/bytes.h"
#include "fullshard/base/error.h"
#include "fullshard/comm/ordered_sum.h"
#include "fullshard/comm/streamed_kernels.h"

namespace fullshard::comm {
namespace {

void copy_bytes(std::byte* to, const std::byte* from, int64_t bytes) {
  if (to == from || bytes == 0) return;
  at::parallel_for(0, bytes, 256 * kKiB, [&](int64_t begin, int64_t end) {
    if (bytes >= kernels::kStreamedBytes) {
      kernels::streamed_copy(to + begin, from + begin, end - begin);
    } else {
      std::memcpy(to + begin, from + begin, end - begin);
    }
  });
}

void check_on_cpu(const at::Tensor& tensor) {
  check(tensor.is_cpu(), "shm: a buffer is on {}, expected the CPU; move it or use another backend",
        tensor.device().str());
}

// Elements that are shown, or written to the other outputs, while they are in a core's cache.
constexpr int64_t kShownNumel = 64 * kKiB;
constexpr int64_t kPushedNumel = 16 * kKiB;

int32_t code(at::ScalarType dtype) { return static_cast<int32_t>(dtype); }

}  // namespace

void ShmGather::prepare() {
  check_on_cpu(rows_);
  check_on_cpu(shard_);
  terms_.dtype = code(shard_.scalar_type());
  input_ = expose(ByteRows::of(shard_));
}

void ShmGather::read_peers() {
  const ByteRows rows = ByteRows::of(rows_);
  const int size = group().size();
  // Each rank begins with its right neighbour, so that not all read from one rank at a time.
  for (int step = 1; step < size; ++step) {
    const int peer = (group().rank() + step) % size;
    copy_bytes(rows.row(peer), input_of(peer).begin, rows.row_bytes);
  }
  copy_bytes(rows.row(group().rank()), ByteRows::of(shard_).begin, rows.row_bytes);
}

void ShmExchangeRows::prepare() {
  check_on_cpu(received_);
  check_on_cpu(sent_);
  terms_.dtype = code(sent_.scalar_type());
  input_ = expose(ByteRows::of(sent_));
}

void ShmExchangeRows::read_peers() {
  const ByteRows received = ByteRows::of(received_);
  const int size = group().size(), own = group().rank();
  for (int step = 1; step < size; ++step) {
    const int peer = (own + step) % size;
    copy_bytes(received.row(peer), input_of(peer).row(own), received.row_bytes);
  }
  copy_bytes(received.row(own), ByteRows::of(sent_).row(own), received.row_bytes);
}

void ShmBroadcast::prepare() {
  check_on_cpu(tensor_);
  terms_.dtype = code(tensor_.scalar_type());
  terms_.root = root_;
  if (group().rank() == root_) input_ = expose(ByteRows::of(tensor_));
}

void ShmBroadcast::read_peers() {
  if (group().rank() == root_) return;
  const ByteRows own = ByteRows::of(tensor_);
  copy_bytes(own.begin, input_of(root_).begin, own.bytes());
}

void ShmReduce::prepare() {
  check_on_cpu(rows_);
  check_on_cpu(shard_);
  if (options_.slices == 0) options_.slices = group().size();
  terms_.dtype = code(rows_.scalar_type());
  terms_.output_dtype = code(shard_.scalar_type());
  terms_.op = static_cast<int32_t>(options_.op);
  terms_.slices = options_.slices;
  terms_.accumulate = options_.accumulate;
  const ByteRows rows = ByteRows::of(rows_);
  input_ = expose(rows);
  // A small slice is quicker summed by each of its ranks than shared out.
  if (num_parts() > 1 && !is_inline(rows.bytes())) expose_output();
}

void ShmReduce::expose_output() {
  const Range own = part(group().rank() / options_.slices);
  const int self = group().domain_rank(group().rank());
  const auto place = group().memory().find(output(0), output_bytes(shard_.numel()), self);
  // Peers must not see this rank's old values, so with accumulation the sum has a place of its own.
  if (place && !options_.accumulate) {
    parts_ = output(own.begin);
    output_ = *place;
    output_is_whole_ = true;
    peers_read_caller_ = true;
  } else {
    const auto bytes = own.numel * static_cast<int64_t>(c10::elementSize(part_dtype()));
    parts_ = stage(bytes);
    output_ = place_of(parts_, bytes);
  }
}

ShmReduce::Range ShmReduce::part(int index) const {
  const int64_t numel = shard_.numel();
  const int64_t length = round_up((numel + num_parts() - 1) / num_parts(), 64);
  const int64_t begin = std::min(numel, index * length);
  return {begin, std::min(numel, begin + length) - begin};
}

at::ScalarType ShmReduce::part_dtype() const {
  return options_.accumulate ? sum_dtype(rows_.scalar_type()) : shard_.scalar_type();
}

int64_t ShmReduce::output_bytes(int64_t numel) const {
  return numel * static_cast<int64_t>(shard_.element_size());
}

std::byte* ShmReduce::output(int64_t element) const {
  return static_cast<std::byte*>(shard_.data_ptr()) + output_bytes(element);
}

std::vector<int> ShmReduce::mates() const {
  std::vector<int> ranks;
  for (int rank = slice(); rank < group().size(); rank += options_.slices) ranks.push_back(rank);
  return ranks;
}

bool ShmReduce::all_outputs_whole() const {
  const auto ranks = mates();
  return std::all_of(ranks.begin(), ranks.end(), [&](int rank) { return is_output_whole(rank); });
}

void ShmReduce::read_peers() {
  if (!spreads()) return sum_slice();
  const Range own = part(group().rank() / options_.slices);
  is_pushed_ = all_outputs_whole();
  if (is_pushed_) return sum_into_all_outputs(own);
  sum(parts_, part_dtype(), own);
}

void ShmReduce::sum(std::byte* to, at::ScalarType dtype, Range range) const {
  const int64_t offset = range.begin * static_cast<int64_t>(rows_.element_size());
  std::vector<const void*> rows(group().size());
  for (int rank = 0; rank < group().size(); ++rank) {
    rows[rank] = input_of(rank).row(slice()) + offset;
  }
  const OrderedSum how{.op = options_.op, .accumulate = options_.accumulate && !spreads()};
  ordered_sum(to, dtype, rows, rows_.scalar_type(), range.numel, how);
}

void ShmReduce::sum_slice() const {
  const int64_t numel = shard_.numel();
  if (!options_.on_result) return sum(output(0), shard_.scalar_type(), {0, numel});
  const int64_t chunk = kShownNumel * at::get_num_threads();
  for (int64_t begin = 0; begin < numel; begin += chunk) {
    const int64_t end = std::min(numel, begin + chunk);
    sum(output(begin), shard_.scalar_type(), {begin, end - begin});
    options_.on_result(begin, end);
  }
}

// The commonest all-reduces have a loop of their own: the chunks of the general one are too short
// for the memory.
bool ShmReduce::is_plain() const {
  const bool adds = options_.op == ReduceOp::sum || options_.op == ReduceOp::average;
  return adds && options_.slices == 1 && kernels::can_sum_into_all(group().size()) &&
         rows_.scalar_type() == at::kFloat && shard_.scalar_type() == at::kFloat;
}

void ShmReduce::sum_plain_into_all_outputs(Range range) const {
  const int size = group().size();
  const bool averages = options_.op == ReduceOp::average;
  const float scale = averages ? static_cast<float>(1.0 / size) : 1.0f;
  at::parallel_for(0, range.numel, 4 * kPushedNumel, [&](int64_t first, int64_t last) {
    const int64_t begin = range.begin + first;
    std::vector<float*> outputs;
    std::vector<const float*> rows;
    for (int rank = 0; rank < size; ++rank) {
      outputs.push_back(reinterpret_cast<float*>(output_of(rank)) + begin);
      rows.push_back(reinterpret_cast<const float*>(input_of(rank).begin) + begin);
    }
    kernels::sum_into_all(outputs, rows, scale, last - first);
  });
}

void ShmReduce::sum_into_all_outputs(Range range) const {
  if (is_plain()) return sum_plain_into_all_outputs(range);
  const auto ranks = mates();
  at::parallel_for(0, range.numel, 4 * kPushedNumel, [&](int64_t first, int64_t last) {
    for (int64_t begin = first; begin < last; begin += kPushedNumel) {
      const int64_t numel = std::min(last - begin, kPushedNumel);
      const int64_t element = range.begin + begin;
      sum(output(element), shard_.scalar_type(), {element, numel});
      for (const int rank : ranks) {
        if (rank == group().rank()) continue;
        std::memcpy(output_of(rank) + output_bytes(element), output(element), output_bytes(numel));
      }
    }
  });
}

bool ShmReduce::needs(int rank) const {
  return rank != group().rank() && rank % options_.slices == slice();
}

void ShmReduce::spread() {
  if (!is_pushed_) {
    for (int index = 0; index < num_parts(); ++index) {
      add_part(index, sums_of(index * options_.slices + slice()));
    }
  }
  if (options_.on_result) options_.on_result(0, shard_.numel());
}

const std::byte* ShmReduce::sums_of(int rank) const {
  if (rank == group().rank()) return parts_;
  const int64_t begin = part(rank / options_.slices).begin;
  return is_output_whole(rank) ? output_of(rank) + output_bytes(begin) : output_of(rank);
}

void ShmReduce::add_part(int index, const std::byte* sums) const {
  const Range range = part(index);
  std::byte* to = output(range.begin);
  if (!options_.accumulate) {
    return copy_bytes(to, sums, range.numel * static_cast<int64_t>(shard_.element_size()));
  }
  const void* row = sums;
  ordered_sum(to, shard_.scalar_type(), {&row, 1}, part_dtype(), range.numel,
              {.op = ReduceOp::sum, .accumulate = true});
}

}  // namespace fullshard::comm
