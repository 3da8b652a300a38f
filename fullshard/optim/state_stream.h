// SPDX-License-Identifier: Apache-2.0
// Optimizer states, and masters, that rest outside the device, and how an update gets at them: a
// few windows on the device, through which they pass chunk by chunk, on three lanes beside the
// caller's stream.
//
//   copies in    | 0 | 1 | 2 | 3 |   | 4 |   | 5 |        a window is filled when it was emptied
//   updates              | 0 | 1 | 2 | 3 | 4 | 5 |        behind the gradients and the clip factor
//   copies out               | 0 | 1 | 2 | 3 | 4 | 5 |
//
// A chunk is a range of one group's shard. Groups come in the order in which forwards need them,
// and the next use of a group waits for its last chunk only: the rest lies under the forward
// (docs/schedule.md, "States in host memory"). What rests on a disk comes through a ring of buffers
// in host memory, and the step itself waits for the disk; on a CPU device those buffers are the
// windows.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "fullshard/engine/engine.h"
#include "fullshard/memory/lane.h"
#include "fullshard/memory/pool.h"
#include "fullshard/memory/wait_times.h"
#include "fullshard/optim/disk_chunks.h"
#include "fullshard/optim/state_places.h"
#include "fullshard/optim/streamed_arrays.h"

namespace fullshard::optim {

// Owned by its optimizer. One thread at a time.
class StateStream : public engine::UpdateStream {
 public:
  // `states` as the optimizer keeps them, [group][state], and outliving this. Takes the windows.
  StateStream(engine::Engine& engine, const std::vector<std::vector<at::Tensor>>& states);
  ~StateStream() override;
  StateStream(const StateStream&) = delete;
  StateStream& operator=(const StateStream&) = delete;

  // Whether anything of that group passes through windows.
  bool streams(int group) const { return groups_.at(static_cast<size_t>(group)).is_any(); }

  // Begins to bring the first chunks of the next step, with the gradients that rest beside them.
  // Once more does nothing, unless gradients have changed since.
  void fetch_ahead();

  // A step: start, then the groups that have gradients in the engine's forward order, then finish.
  // Nothing waits but for a disk. `update` is called once for each chunk on the lane of updates;
  // what it reads of the caller's beside the pieces is `kept` until the next step. All chunks are
  // issued at once: chunks that wait for somebody to ask for them were slower where the host
  // updates a share, and no faster elsewhere (bench/results/offload.md).
  void start_step(std::vector<at::Tensor> kept);
  engine::StreamedUpdate update(int group, const std::vector<PieceView>& pieces,
                                const std::function<void(const StateChunk&)>& update);
  void finish_step();
  // In its place after an error: what is held of a disk is let go, unwritten.
  void abandon_step();

  void settle() override;
  void give_windows_back() override;
  void take_windows() override;

  int num_windows() const { return static_cast<int>(windows_.size()); }
  int64_t window_bytes() const { return window_bytes_; }
  // What the disk was asked for; nothing where nothing rests there.
  const DiskChunks* disk() const { return disk_ ? &*disk_ : nullptr; }

 private:
  struct Window {
    memory::Block memory;
    std::vector<at::Tensor> sources;  // where the arrays of its chunk rest, or their buffers
    memory::LaneMark filled;
    memory::LaneMark emptied;
  };

  std::vector<ChunkRange> ranges() const;  // of the groups that have gradients
  bool is_fetched(const std::vector<ChunkRange>& wanted) const;
  std::vector<at::Tensor> arrays_in(const Window& window, const ChunkRange& range) const;
  std::vector<at::Tensor> sources_of(size_t chunk);
  void fetch_next();
  void store(const ChunkRange& range, Window& window);
  StateChunk chunk_of(const ChunkRange& range, const std::vector<at::Tensor>& arrays,
                      const std::vector<PieceView>& pieces) const;
  void update_in_place(size_t chunk, const std::vector<PieceView>& pieces,
                       const std::function<void(const StateChunk&)>& update);
  void update_in_window(size_t chunk, const std::vector<PieceView>& pieces,
                        const std::function<void(const StateChunk&)>& update);
  void count_disk();
  void forget_step();

  engine::Engine& engine_;
  const std::vector<std::vector<at::Tensor>>& states_;
  std::vector<StreamedGroup> groups_;
  int64_t window_bytes_ = 0;
  bool in_place_ = false;  // the device can use what the sources are
  std::vector<Window> windows_;
  memory::Lane copies_in_, updates_, copies_out_;
  memory::WaitTimes for_copies_in_, for_copies_out_;
  // Of the step that is prepared or issued; chunk i goes through window i modulo their number.
  std::vector<ChunkRange> ranges_;
  std::vector<ChunkRange> stored_ranges_;  // of the last step, whose copies out may be under way
  uint64_t gradient_version_ = 0;          // of what was fetched
  size_t num_fetched_ = 0;
  size_t num_updated_ = 0;
  std::vector<at::Tensor> kept_;
  std::optional<DiskChunks> disk_;
  tiers::RingCounters counted_;  // of it
};

}  // namespace fullshard::optim
