// SPDX-License-Identifier: Apache-2.0
// How a reduction is shared out: which rank adds which elements, and in which order it adds the
// ranks. Integers only, the same for everything that carries a reduction.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace fullshard::comm {

// Rank r reduces part r / slices of slice r % slices; the ranks of one slice are its replicas.
//
//   4 ranks, 2 slices:   slice 0: | rank 0 | rank 2 |    slice 1: | rank 1 | rank 3 |
struct ReduceParts {
  ReduceParts(const at::Tensor& rows, int num_ranks)
      : num_slices(static_cast<int>(rows.size(0))),
        num_parts(num_ranks / num_slices),
        slice_numel(rows.size(1)),
        slice_stride(rows.stride(0)) {}

  int slice_of(int rank) const { return rank % num_slices; }
  int part_of(int rank) const { return rank / num_slices; }
  int64_t begin(int part) const { return slice_numel * part / num_parts; }
  int64_t numel(int part) const { return begin(part + 1) - begin(part); }
  // Of what `rank` reduces, in elements from the first one of the input.
  int64_t place_of(int rank) const { return slice_of(rank) * slice_stride + begin(part_of(rank)); }
  int64_t numel_of(int rank) const { return numel(part_of(rank)); }

  int num_slices;
  int num_parts;
  int64_t slice_numel;
  int64_t slice_stride;
};

// The ranks of a host in ascending order, then the hosts: the order in which rows are added.
struct HostOrder {
  // `hosts` of each rank of the group, numbered as the world does.
  explicit HostOrder(const std::vector<int>& hosts);

  int num_hosts() const { return static_cast<int>(rows_per_host.size()); }
  // Where hosts hold equally many.
  int rank_at(int host, int place) const {
    return ranks[static_cast<size_t>(host * ranks_per_host + place)];
  }

  int place_of(int rank) const;  // in `ranks`

  std::vector<int> ranks;
  std::vector<int> rows_per_host;
  int ranks_per_host = 0;  // 0 where hosts hold different numbers of them
};

}  // namespace fullshard::comm
