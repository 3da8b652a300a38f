#include "fullshard/comm/shm_collectives.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstring>

#include "fullshard/base/bytes.h"
#include "fullshard/base/error.h"
#include "fullshard/comm/ordered_sum.h"

namespace fullshard {
namespace {

void copy_bytes(std::byte* to, const std::byte* from, int64_t bytes) {
  if (to == from || bytes == 0) return;
  at::parallel_for(0, bytes, 256 * kKiB, [&](int64_t begin, int64_t end) {
    std::memcpy(to + begin, from + begin, end - begin);
  });
}

void check_on_cpu(const at::Tensor& tensor) {
  check(tensor.is_cpu(), "shm: a buffer is on {}, expected the CPU; move it or use another backend",
        tensor.device().str());
}

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
  if (num_parts() > 1 && !is_inline(rows.bytes())) expose_part();
}

void ShmReduce::expose_part() {
  const Range own = part(group().rank() / options_.slices);
  const auto bytes = own.numel * static_cast<int64_t>(c10::elementSize(part_dtype()));
  parts_ = output(own.begin);
  const int self = group().domain_rank(group().rank());
  const auto place = group().memory().find(parts_, bytes, self);
  // Peers must not see this rank's old values, so with accumulation the sum has a place of its own.
  if (place && !options_.accumulate) {
    output_ = *place;
    peers_read_caller_ = true;
  } else {
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

std::byte* ShmReduce::output(int64_t element) const {
  return static_cast<std::byte*>(shard_.data_ptr()) +
         element * static_cast<int64_t>(shard_.element_size());
}

void ShmReduce::read_peers() {
  const Range range = spreads() ? part(group().rank() / options_.slices) : Range{0, shard_.numel()};
  const int64_t offset = range.begin * static_cast<int64_t>(rows_.element_size());
  std::vector<const void*> rows(group().size());
  for (int rank = 0; rank < group().size(); ++rank) {
    rows[rank] = input_of(rank).row(slice()) + offset;
  }
  OrderedSum sum{.op = options_.op, .accumulate = options_.accumulate && !spreads()};
  ordered_sum(spreads() ? parts_ : output(0), spreads() ? part_dtype() : shard_.scalar_type(), rows,
              rows_.scalar_type(), range.numel, sum);
}

bool ShmReduce::needs(int rank) const {
  return rank != group().rank() && rank % options_.slices == slice();
}

void ShmReduce::spread() {
  for (int index = 0; index < num_parts(); ++index) {
    const int rank = index * options_.slices + slice();
    add_part(index, rank == group().rank() ? parts_ : output_of(rank));
  }
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

}  // namespace fullshard
