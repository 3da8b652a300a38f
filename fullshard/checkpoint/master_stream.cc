// SPDX-License-Identifier: Apache-2.0
#include "fullshard/checkpoint/master_stream.h"

#include <c10/core/ScalarType.h>

#include <algorithm>

#include "fullshard/base/bytes.h"
#include "fullshard/checkpoint/patient_work.h"

namespace fullshard::checkpoint {
namespace {

constexpr int64_t kWindowBytes = 4 * kMiB;

// `window` holds the elements of a shard from `first` on.
void show_window(const engine::Layout& layout, int shard, int64_t first, const at::Tensor& window,
                 const ShowRange& show) {
  const int64_t last = first + window.numel();
  for (const auto& piece : layout.pieces(shard)) {
    const int64_t begin = std::max(first, piece.shard_offset);
    const int64_t end = std::min(last, piece.shard_offset + piece.numel());
    if (begin >= end) continue;
    show(piece.slot, piece.begin + begin - piece.shard_offset,
         window.narrow(0, begin - first, end - begin));
  }
}

}  // namespace

void stream_masters(const engine::Engine& engine, const engine::ParamGroup& group,
                    const ShowRange& show) {
  const auto& mesh = engine.mesh();
  const auto& layout = group.layout();
  const int num_shards = layout.num_shards();
  const bool is_whole = num_shards == 1;
  if (is_whole && group.device().is_cpu()) {
    return wait_for_rank_0(mesh.everyone(),
                           [&] { show_window(layout, 0, 0, group.master(), show); });
  }
  const auto dtype = group.spec().master_dtype;
  const auto element_bytes = static_cast<int64_t>(c10::elementSize(dtype));
  const int64_t most = std::min(layout.shard_numel(),
                                std::max<int64_t>(kWindowBytes / element_bytes / num_shards, 1));
  memory::Block block;
  if (!is_whole)
    block = engine.pool()->take(num_shards * most * element_bytes, tiers::Purpose::workspace);
  for (int64_t first = 0; first < layout.shard_numel(); first += most) {
    const int64_t count = std::min(most, layout.shard_numel() - first);
    const auto windows =
        is_whole ? group.master(first, count) : block.as(num_shards * count, dtype);
    if (!is_whole && mesh.replica() == 0) {  // the first replica has everything
      const auto own = group.master(first, count).to(group.device());
      mesh.shards().all_gather(windows, own, group.owner()).wait();
    }
    wait_for_rank_0(mesh.everyone(), [&] {
      const auto on_host = windows.cpu();
      for (int shard = 0; shard < num_shards; ++shard) {
        show_window(layout, shard, first, on_host.narrow(0, shard * count, count), show);
      }
    });
  }
}

}  // namespace fullshard::checkpoint
