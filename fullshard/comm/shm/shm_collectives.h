// SPDX-License-Identifier: Apache-2.0
// The collectives as passes over the peers' memory. Each takes buffers that Communicator has
// checked, and holds them until it is retired.
#pragma once

#include <ATen/core/Tensor.h>

#include "fullshard/comm/shm/shm_call.h"

namespace fullshard::comm {

class ShmBarrier final : public ShmCall {
 public:
  using ShmCall::ShmCall;

 private:
  void prepare() override {}
  void read_peers() override {}
};

// Copies each peer's shard into its row.
class ShmGather final : public ShmCall {
 public:
  template <class... Base>
  ShmGather(at::Tensor rows, at::Tensor shard, Base&&... base)
      : ShmCall(std::forward<Base>(base)...), rows_(std::move(rows)), shard_(std::move(shard)) {}

 private:
  void prepare() override;
  void read_peers() override;
  void forget() override { rows_ = shard_ = at::Tensor(); }

  at::Tensor rows_;
  at::Tensor shard_;
};

// Copies the own row of each peer.
class ShmExchangeRows final : public ShmCall {
 public:
  template <class... Base>
  ShmExchangeRows(at::Tensor received, at::Tensor sent, Base&&... base)
      : ShmCall(std::forward<Base>(base)...),
        received_(std::move(received)),
        sent_(std::move(sent)) {}

 private:
  void prepare() override;
  void read_peers() override;
  void forget() override { received_ = sent_ = at::Tensor(); }

  at::Tensor received_;
  at::Tensor sent_;
};

class ShmBroadcast final : public ShmCall {
 public:
  template <class... Base>
  ShmBroadcast(at::Tensor tensor, int root, Base&&... base)
      : ShmCall(std::forward<Base>(base)...), tensor_(std::move(tensor)), root_(root) {}

 private:
  void prepare() override;
  void read_peers() override;
  void forget() override { tensor_ = at::Tensor(); }

  at::Tensor tensor_;
  int root_;
};

// With F slices over W ranks, rank r = p · F + s receives slice s, as R = W / F ranks do. It sums
// part p of the slice over all ranks, and every element is summed once:
//
//   slice s   | part 0 | part 1 | ... | part R-1 |      part p is summed by rank p · F + s
//
// Where all R outputs lie in shared memory, a sum is written into each of them while it is in the
// cache. Else each rank takes the foreign parts from those who summed them. Outputs may be the own
// rows of the inputs: part p of row s is read by nobody but rank p · F + s, who writes it.
class ShmReduce final : public ShmCall {
 public:
  template <class... Base>
  ShmReduce(at::Tensor shard, at::Tensor rows, const ReduceOptions& options, Base&&... base)
      : ShmCall(std::forward<Base>(base)...),
        shard_(std::move(shard)),
        rows_(std::move(rows)),
        options_(options) {}

 private:
  struct Range {
    int64_t begin = 0;
    int64_t numel = 0;
  };

  void prepare() override;
  void read_peers() override;
  bool spreads() const override { return parts_ != nullptr; }
  bool needs(int rank) const override;
  void spread() override;
  void forget() override { rows_ = shard_ = at::Tensor(); }

  int num_parts() const { return group().size() / options_.slices; }
  int slice() const { return group().rank() % options_.slices; }
  Range part(int index) const;
  std::byte* output(int64_t element) const;
  int64_t output_bytes(int64_t numel) const;
  at::ScalarType part_dtype() const;
  void expose_output();
  // The ranks that receive the same slice, this one included.
  std::vector<int> mates() const;
  bool all_outputs_whole() const;
  void sum(std::byte* to, at::ScalarType dtype, Range range) const;
  void sum_slice() const;
  void sum_into_all_outputs(Range range) const;
  bool is_plain() const;
  void sum_plain_into_all_outputs(Range range) const;
  const std::byte* sums_of(int rank) const;
  void add_part(int index, const std::byte* sums) const;

  at::Tensor shard_;
  at::Tensor rows_;
  ReduceOptions options_;
  std::byte* parts_ = nullptr;  // where this rank's part is summed; null: the slice is not cut
  bool is_pushed_ = false;      // every rank writes its part into all outputs
};

}  // namespace fullshard::comm
