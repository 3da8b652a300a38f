// SPDX-License-Identifier: Apache-2.0
#include "fullshard/optim/state_stream.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "fullshard/base/error.h"

namespace fullshard::optim {
namespace {

// Targets that are undefined are left out.
void copy_all(const std::vector<at::Tensor>& targets, const std::vector<at::Tensor>& sources) {
  for (size_t i = 0; i < targets.size(); ++i) {
    if (targets[i].defined()) targets[i].copy_(sources[i], /*non_blocking=*/true);
  }
}

int64_t total_bytes(const std::vector<at::Tensor>& arrays) {
  int64_t bytes = 0;
  for (const auto& array : arrays) {
    if (array.defined()) bytes += static_cast<int64_t>(array.nbytes());
  }
  return bytes;
}

// States and parameters may rest in one file.
std::vector<memory::DiskMemory*> disks_of(const engine::TierMemory& tiers) {
  std::vector<memory::DiskMemory*> disks;
  for (auto* disk : {tiers.disk_of_states(), tiers.disk_of_parameters()}) {
    if (disk != nullptr && std::find(disks.begin(), disks.end(), disk) == disks.end()) {
      disks.push_back(disk);
    }
  }
  return disks;
}

}  // namespace

StateStream::StateStream(engine::Engine& engine, const std::vector<std::vector<at::Tensor>>& states)
    : engine_(engine),
      states_(states),
      in_place_(engine.mesh().world().device().is_cpu() &&
                !engine.options().offload.streams_on_cpu),
      copies_in_(engine.mesh().world().device()),
      updates_(engine.mesh().world().device()),
      copies_out_(engine.mesh().world().device()) {
  const auto& options = engine.options().offload;
  const auto groups = engine.trainable_groups();
  size_t num_chunks = 0;
  bool uses_disk = false;
  for (size_t i = 0; i < groups.size(); ++i) {
    groups_.push_back(streamed_group(*groups[i], states[i], options.window_bytes,
                                     engine.options().sub_group_size));
    const auto& group = groups_.back();
    if (!group.is_any()) continue;
    uses_disk = uses_disk || group.has(tiers::Tier::disk);
    window_bytes_ = std::max(window_bytes_, group.chunk_numel * group.element_bytes());
    num_chunks += static_cast<size_t>((group.numel + group.chunk_numel - 1) / group.chunk_numel);
  }
  windows_.resize(std::min(static_cast<size_t>(options.optimizer.buffer_count), num_chunks));
  if (uses_disk) {
    disk_.emplace(groups_, num_windows(),
                  tiers::RingOptions{.reads_ahead = options.pipeline_read,
                                     .writes_behind = options.pipeline_write},
                  disks_of(engine.tiers()), *engine.tiers().host());
  }
  take_windows();
  engine_.enter_stream(*this);
}

void StateStream::take_windows() {
  if (in_place_) return;
  for (auto& window : windows_) {
    window.memory = engine_.pool()->take(window_bytes_, tiers::Purpose::optimizer);
  }
  // They are the lanes' from here on; their memory may be what the caller's stream used.
  copies_in_.wait_for(memory::LaneMark::of_caller(engine_.mesh().world().device()));
}

void StateStream::give_windows_back() {
  for (auto& window : windows_) window = {};
}

// Work of the CPU's lanes belongs to the optimizer, which is gone: it cannot be done any more.
StateStream::~StateStream() {
  engine_.leave_stream(*this);
  try {
    if (!engine_.mesh().world().device().is_cpu()) settle();
  } catch (const std::exception& error) {
    spdlog::error("optimizer states outside the device: {}", error.what());
  }
}

std::vector<ChunkRange> StateStream::ranges() const {
  std::vector<ChunkRange> ranges;
  const auto groups = engine_.trainable_groups();
  for (const int index : engine_.groups_in_forward_order()) {
    const auto& group = groups_[static_cast<size_t>(index)];
    if (!group.is_any() || !groups[static_cast<size_t>(index)]->gradients().is_reduced()) continue;
    for (int64_t first = 0; first < group.numel; first += group.chunk_numel) {
      ranges.push_back({index, first, std::min(group.chunk_numel, group.numel - first)});
    }
  }
  return ranges;
}

// Behind each other, each with room for a whole chunk.
std::vector<at::Tensor> StateStream::arrays_in(const Window& window,
                                               const ChunkRange& range) const {
  const auto& group = groups_[static_cast<size_t>(range.group)];
  const auto bytes = window.memory.as(window_bytes_, at::kByte);
  std::vector<at::Tensor> arrays;
  int64_t first = 0;
  for (const auto& array : group.arrays) {
    const int64_t size = group.chunk_numel * array.resting.element_size();
    arrays.push_back(
        bytes.narrow(0, first, size).view(array.resting.scalar_type()).narrow(0, 0, range.numel));
    first += size;
  }
  return arrays;
}

// Of the chunk's arrays, those of a disk in buffers: waits for the disk.
std::vector<at::Tensor> StateStream::sources_of(size_t chunk) {
  const auto& range = ranges_[chunk];
  std::vector<at::Tensor> buffers;
  if (disk_) buffers = disk_->acquire(chunk);
  auto buffer = buffers.begin();
  std::vector<at::Tensor> sources;
  for (const auto& array : groups_[static_cast<size_t>(range.group)].arrays) {
    sources.push_back(array.tier == tiers::Tier::disk
                          ? std::move(*buffer++)
                          : array.resting.narrow(0, range.first, range.numel));
  }
  return sources;
}

void StateStream::fetch_next() {
  if (num_fetched_ == ranges_.size()) return;
  const auto& range = ranges_[num_fetched_];
  auto& window = windows_[num_fetched_ % windows_.size()];
  if (disk_ && num_fetched_ >= windows_.size()) {
    window.emptied.wait();
    disk_->release(num_fetched_ - windows_.size());
  }
  window.sources = sources_of(num_fetched_);
  ++num_fetched_;
  engine_.counters().states_copied_in += total_bytes(window.sources);
  copies_in_.wait_for(window.emptied, for_copies_out_);
  const auto* group = engine_.trainable_groups()[static_cast<size_t>(range.group)];
  if (const auto* away = group->gradients().away()) copies_in_.wait_for(away->left());
  copies_in_.run([targets = arrays_in(window, range), sources = window.sources] {
    copy_all(targets, sources);
  });
  window.filled = copies_in_.mark();
}

void StateStream::store(const ChunkRange& range, Window& window) {
  const auto& arrays = groups_[static_cast<size_t>(range.group)].arrays;
  for (size_t i = 0; i < arrays.size(); ++i) {
    if (!arrays[i].is_written()) window.sources[i] = at::Tensor();
  }
  engine_.counters().states_copied_out += total_bytes(window.sources);
  copies_out_.wait_for(updates_.mark());
  copies_out_.run([targets = std::move(window.sources), sources = arrays_in(window, range)] {
    copy_all(targets, sources);
  });
  window.sources.clear();
  window.emptied = copies_out_.mark();
}

bool StateStream::is_fetched(const std::vector<ChunkRange>& wanted) const {
  return num_fetched_ > 0 && wanted == ranges_ && gradient_version_ == engine_.gradient_version();
}

void StateStream::fetch_ahead() {
  auto wanted = ranges();
  if (is_fetched(wanted)) return;
  // A window is filled behind its own last copy out. With the chunks of the last step that is
  // behind those of the same states, too; with others these may be later ones.
  if (wanted != stored_ranges_) copies_in_.wait_for(copies_out_.mark());
  ranges_ = std::move(wanted);
  gradient_version_ = engine_.gradient_version();
  num_fetched_ = 0;
  num_updated_ = 0;
  if (disk_) {
    disk_->prepare(ranges_);  // the host waits for it in the step, not here
    return;
  }
  for (size_t i = 0; i < windows_.size(); ++i) fetch_next();
}

void StateStream::start_step(std::vector<at::Tensor> kept) {
  fetch_ahead();
  kept_ = std::move(kept);
  engine_.counters().copy_in_wait_s += for_copies_in_.take();
  engine_.counters().copy_out_wait_s += for_copies_out_.take();
  updates_.wait_for(memory::LaneMark::of_caller(engine_.mesh().world().device()));
}

StateChunk StateStream::chunk_of(const ChunkRange& range, const std::vector<at::Tensor>& arrays,
                                 const std::vector<PieceView>& pieces) const {
  StateChunk chunk{.pieces = {}, .states = {}, .first = range.first};
  for (const auto& state : states_[static_cast<size_t>(range.group)]) {
    chunk.states.push_back(state.narrow(0, range.first, range.numel));
  }
  at::Tensor master, shown, lower, gradient;
  const auto& group = groups_[static_cast<size_t>(range.group)];
  for (size_t i = 0; i < arrays.size(); ++i) {
    switch (group.arrays[i].role) {
      case StreamedArray::Role::state:
        chunk.states[static_cast<size_t>(group.arrays[i].state)] = arrays[i];
        break;
      case StreamedArray::Role::master:
        master = arrays[i];
        break;
      case StreamedArray::Role::shown:
        shown = arrays[i];
        break;
      case StreamedArray::Role::lower:
        lower = arrays[i];
        break;
      case StreamedArray::Role::gradient:
        gradient = arrays[i];
        break;
    }
  }
  for (const auto& piece : pieces) {
    const int64_t begin = std::max(piece.offset, range.first);
    const int64_t end = std::min(piece.offset + piece.numel(), range.first + range.numel);
    if (begin >= end) continue;
    auto part = piece.part(begin - piece.offset, end - begin);
    const auto take = [&](at::Tensor& target, const at::Tensor& from) {
      if (from.defined()) target = from.narrow(0, begin - range.first, end - begin);
    };
    take(part.master, master);
    take(part.shown, shown);
    take(part.lower, lower);
    take(part.gradient, gradient);
    chunk.pieces.push_back(std::move(part));
  }
  return chunk;
}

// The CPU uses the buffers of the disk themselves.
void StateStream::update_in_place(size_t chunk, const std::vector<PieceView>& pieces,
                                  const std::function<void(const StateChunk&)>& update) {
  const auto sources = sources_of(chunk);
  ++num_fetched_;
  update(chunk_of(ranges_[chunk], sources, pieces));
  if (disk_) disk_->release(chunk);
}

void StateStream::update_in_window(size_t chunk, const std::vector<PieceView>& pieces,
                                   const std::function<void(const StateChunk&)>& update) {
  if (num_fetched_ == chunk) fetch_next();
  const auto& range = ranges_[chunk];
  auto& window = windows_[chunk % windows_.size()];
  updates_.wait_for(window.filled, for_copies_in_);
  updates_.run(
      [update, chunk = chunk_of(range, arrays_in(window, range), pieces)] { update(chunk); });
  store(range, window);
}

engine::StreamedUpdate StateStream::update(int group, const std::vector<PieceView>& pieces,
                                           const std::function<void(const StateChunk&)>& update) {
  auto& largest = engine_.counters().largest_update;
  while (num_updated_ < ranges_.size() && ranges_[num_updated_].group == group) {
    const size_t chunk = num_updated_++;
    largest = std::max(largest, ranges_[chunk].numel);
    if (in_place_) {
      update_in_place(chunk, pieces, update);
    } else {
      update_in_window(chunk, pieces, update);
      if (num_fetched_ < num_updated_ + windows_.size()) fetch_next();
    }
  }
  return {.updated = updates_.mark(), .stored = copies_out_.mark()};
}

void StateStream::finish_step() {
  check(num_updated_ == ranges_.size(),
        "an update of states outside the device ended after {} of {} chunks; the optimizer's "
        "states and its parameters are of different steps: load the last checkpoint",
        num_updated_, ranges_.size());
  if (disk_ && !in_place_) {
    const size_t first = ranges_.size() - std::min(ranges_.size(), windows_.size());
    for (size_t chunk = first; chunk < ranges_.size(); ++chunk) {
      windows_[chunk % windows_.size()].emptied.wait();
      disk_->release(chunk);
    }
  }
  count_disk();
  stored_ranges_ = ranges_;
  forget_step();
}

void StateStream::abandon_step() {
  if (disk_) disk_->abandon();
  stored_ranges_.clear();
  forget_step();
}

void StateStream::count_disk() {
  if (!disk_) return;
  const auto now = disk_->counters();
  engine_.counters().disk_bytes_read += now.bytes_visited - counted_.bytes_visited;
  engine_.counters().disk_bytes_written += now.bytes_written - counted_.bytes_written;
  engine_.counters().disk_read_wait_s += now.read_wait_seconds - counted_.read_wait_seconds;
  engine_.counters().disk_write_wait_s += now.write_wait_seconds - counted_.write_wait_seconds;
  counted_ = now;
}

void StateStream::forget_step() {
  ranges_.clear();
  num_fetched_ = 0;
  num_updated_ = 0;
}

void StateStream::settle() {
  copies_in_.mark().wait();
  updates_.mark().wait();
  copies_out_.mark().wait();
  if (disk_) disk_->settle();
  forget_step();
}

}  // namespace fullshard::optim
