// SPDX-License-Identifier: Apache-2.0
// Optimizer states that rest in host memory, and how an update gets at them: a few windows on the
// device, through which they pass chunk by chunk, on three lanes beside the caller's stream.
//
//   copies in    | 0 | 1 | 2 | 3 |   | 4 |   | 5 |        a window is filled when it was emptied
//   updates              | 0 | 1 | 2 | 3 | 4 | 5 |        behind the gradients and the clip factor
//   copies out               | 0 | 1 | 2 | 3 | 4 | 5 |
//
// A chunk is a range of one group's shard. Groups come in the order in which forwards need them,
// and the next use of a group waits for its last chunk only: the rest lies under the forward
// (docs/schedule.md, "States in host memory").
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "fullshard/engine/engine.h"
#include "fullshard/memory/lane.h"
#include "fullshard/memory/pool.h"
#include "fullshard/optim/state_places.h"

namespace fullshard::optim {

// Owned by its optimizer. One thread at a time.
class StateStream : public engine::UpdateStream {
 public:
  // `states` as the optimizer keeps them, [group][state], and outliving this. Takes the windows.
  StateStream(engine::Engine& engine, const std::vector<std::vector<at::Tensor>>& states);
  ~StateStream() override;
  StateStream(const StateStream&) = delete;
  StateStream& operator=(const StateStream&) = delete;

  // Whether anything of that group's state passes through windows.
  bool streams(int group) const { return places_.at(static_cast<size_t>(group)).element_bytes > 0; }

  // Fills windows with the first chunks of the next step; they depend on no gradient.
  void fetch_ahead();

  // A step: start, then the groups that have gradients in the engine's forward order, then finish.
  // Nothing waits. `update` is called once for each chunk on the lane of updates. What the
  // updates read of the caller's beside the pieces is `kept` until the next step.
  void start_step(std::vector<at::Tensor> kept);
  engine::StreamedUpdate update(int group, const std::vector<PieceView>& pieces,
                                const std::function<void(const StateChunk&)>& update);
  void finish_step();

  void settle() override;

  int num_windows() const { return static_cast<int>(windows_.size()); }
  int64_t window_bytes() const { return window_bytes_; }

 private:
  // What a group streams: its states, and the lower half of its master where that rests on the
  // host.
  struct Place {
    int64_t element_bytes = 0;  // 0: nothing
    int64_t numel = 0;          // of the shard
    int64_t chunk_numel = 0;
  };
  struct Range {
    int group = 0;
    int64_t first = 0;
    int64_t numel = 0;

    bool operator==(const Range&) const = default;
  };
  struct Window {
    memory::Block memory;
    memory::LaneMark filled;
    memory::LaneMark emptied;
  };

  std::vector<at::Tensor> resting(int group) const;
  std::vector<Range> ranges() const;  // of the groups that have gradients
  std::vector<at::Tensor> arrays_in(const Window& window, const Range& range) const;
  void fetch(const Range& range, Window& window);
  void store(const Range& range, Window& window);
  void fetch_next();
  StateChunk chunk_of(const Range& range, const Window& window,
                      const std::vector<PieceView>& pieces) const;

  engine::Engine& engine_;
  const std::vector<std::vector<at::Tensor>>& states_;
  std::vector<Place> places_;  // by group
  int64_t window_bytes_ = 0;
  std::vector<Window> windows_;
  memory::Lane copies_in_, updates_, copies_out_;
  // Of the step that is prepared or issued; chunk i goes through window i modulo their number.
  std::vector<Range> ranges_;
  size_t num_fetched_ = 0;
  size_t num_updated_ = 0;
  std::vector<at::Tensor> kept_;
};

}  // namespace fullshard::optim
