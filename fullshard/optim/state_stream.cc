// SPDX-License-Identifier: Apache-2.0
#include "fullshard/optim/state_stream.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "fullshard/base/error.h"

namespace fullshard::optim {
namespace {

// Chunks begin at multiples of it, so that arrays in windows are aligned as those they come from.
constexpr int64_t kChunkAlign = 16;

int64_t bytes_of_element(const std::vector<at::Tensor>& arrays) {
  int64_t bytes = 0;
  for (const auto& array : arrays) bytes += array.element_size();
  return bytes;
}

void copy_all(const std::vector<at::Tensor>& targets, const std::vector<at::Tensor>& sources) {
  for (size_t i = 0; i < targets.size(); ++i) {
    targets[i].copy_(sources[i], /*non_blocking=*/true);
  }
}

int64_t total_bytes(const std::vector<at::Tensor>& arrays) {
  int64_t bytes = 0;
  for (const auto& array : arrays) bytes += static_cast<int64_t>(array.nbytes());
  return bytes;
}

std::vector<at::Tensor> narrowed(std::vector<at::Tensor> arrays, int64_t first, int64_t numel) {
  for (auto& array : arrays) array = array.narrow(0, first, numel);
  return arrays;
}

}  // namespace

StateStream::StateStream(engine::Engine& engine, const std::vector<std::vector<at::Tensor>>& states)
    : engine_(engine),
      states_(states),
      copies_in_(engine.mesh().world().device()),
      updates_(engine.mesh().world().device()),
      copies_out_(engine.mesh().world().device()) {
  const auto& options = engine.options().offload;
  const auto groups = engine.trainable_groups();
  size_t num_chunks = 0;
  for (size_t i = 0; i < groups.size(); ++i) {
    Place place{.numel = groups[i]->layout().shard_numel()};
    if (groups[i]->spec().states_on_host && place.numel > 0) {
      place.element_bytes = bytes_of_element(resting(static_cast<int>(i)));
    }
    if (place.element_bytes > 0) {
      check(options.window_bytes >= kChunkAlign * place.element_bytes,
            "offload.window_bytes is {}, expected at least {}: {} elements of {} bytes of state",
            options.window_bytes, kChunkAlign * place.element_bytes, kChunkAlign,
            place.element_bytes);
      int64_t most = options.window_bytes / place.element_bytes;
      const int64_t limit = engine.options().sub_group_size;
      if (limit > 0) most = std::min(most, std::max(limit, kChunkAlign));
      place.chunk_numel = std::min(most / kChunkAlign * kChunkAlign,
                                   (place.numel + kChunkAlign - 1) / kChunkAlign * kChunkAlign);
      window_bytes_ = std::max(window_bytes_, place.chunk_numel * place.element_bytes);
      num_chunks += static_cast<size_t>((place.numel + place.chunk_numel - 1) / place.chunk_numel);
    }
    places_.push_back(place);
  }
  windows_.resize(std::min(static_cast<size_t>(options.num_windows), num_chunks));
  for (auto& window : windows_) {
    window.memory = engine.pool()->take(window_bytes_, tiers::Purpose::optimizer);
  }
  // The windows are the lanes' from here on; their memory may be what the caller's stream used.
  copies_in_.wait_for(memory::LaneMark::of_caller(engine.mesh().world().device()));
  engine_.enter_stream(*this);
}

// Work of the CPU's lanes belongs to the optimizer, which is gone: it cannot be done any more.
StateStream::~StateStream() {
  engine_.leave_stream(*this);
  if (engine_.mesh().world().device().is_cpu()) return;
  try {
    settle();
  } catch (const std::exception& error) {
    spdlog::error("optimizer states in host memory: {}", error.what());
  }
}

std::vector<at::Tensor> StateStream::resting(int group) const {
  auto arrays = states_.at(static_cast<size_t>(group));
  const auto lower = engine_.trainable_groups().at(static_cast<size_t>(group))->lower_half();
  if (lower.defined()) arrays.push_back(lower);
  return arrays;
}

std::vector<StateStream::Range> StateStream::ranges() const {
  std::vector<Range> ranges;
  const auto groups = engine_.trainable_groups();
  for (const int group : engine_.groups_in_forward_order()) {
    const auto& place = places_[static_cast<size_t>(group)];
    if (place.element_bytes == 0 || !groups[static_cast<size_t>(group)]->gradients().is_reduced()) {
      continue;
    }
    for (int64_t first = 0; first < place.numel; first += place.chunk_numel) {
      ranges.push_back({group, first, std::min(place.chunk_numel, place.numel - first)});
    }
  }
  return ranges;
}

// Behind each other, each with room for a whole chunk.
std::vector<at::Tensor> StateStream::arrays_in(const Window& window, const Range& range) const {
  const auto& place = places_[static_cast<size_t>(range.group)];
  const auto bytes = window.memory.as(window_bytes_, at::kByte);
  std::vector<at::Tensor> arrays;
  int64_t first = 0;
  for (const auto& array : resting(range.group)) {
    const int64_t size = place.chunk_numel * array.element_size();
    arrays.push_back(
        bytes.narrow(0, first, size).view(array.scalar_type()).narrow(0, 0, range.numel));
    first += size;
  }
  return arrays;
}

void StateStream::fetch(const Range& range, Window& window) {
  auto targets = arrays_in(window, range);
  auto sources = narrowed(resting(range.group), range.first, range.numel);
  engine_.counters().states_copied_in += total_bytes(sources);
  copies_in_.wait_for(window.emptied);
  copies_in_.run(
      [targets = std::move(targets), sources = std::move(sources)] { copy_all(targets, sources); });
  window.filled = copies_in_.mark();
}

void StateStream::store(const Range& range, Window& window) {
  auto targets = narrowed(resting(range.group), range.first, range.numel);
  auto sources = arrays_in(window, range);
  engine_.counters().states_copied_out += total_bytes(sources);
  copies_out_.wait_for(updates_.mark());
  copies_out_.run(
      [targets = std::move(targets), sources = std::move(sources)] { copy_all(targets, sources); });
  window.emptied = copies_out_.mark();
}

void StateStream::fetch_next() {
  if (num_fetched_ == ranges_.size()) return;
  fetch(ranges_[num_fetched_], windows_[num_fetched_ % windows_.size()]);
  ++num_fetched_;
}

void StateStream::fetch_ahead() {
  auto wanted = ranges();
  if (wanted == ranges_ && num_fetched_ > 0) return;
  ranges_ = std::move(wanted);
  num_fetched_ = 0;
  num_updated_ = 0;
  for (size_t i = 0; i < windows_.size(); ++i) fetch_next();
}

void StateStream::start_step(std::vector<at::Tensor> kept) {
  fetch_ahead();
  kept_ = std::move(kept);
  updates_.wait_for(memory::LaneMark::of_caller(engine_.mesh().world().device()));
}

StateChunk StateStream::chunk_of(const Range& range, const Window& window,
                                 const std::vector<PieceView>& pieces) const {
  StateChunk chunk{.pieces = {}, .states = arrays_in(window, range), .first = range.first};
  at::Tensor lower;
  if (chunk.states.size() > states_[static_cast<size_t>(range.group)].size()) {
    lower = std::move(chunk.states.back());
    chunk.states.pop_back();
  }
  for (const auto& piece : pieces) {
    const int64_t begin = std::max(piece.offset, range.first);
    const int64_t end = std::min(piece.offset + piece.numel(), range.first + range.numel);
    if (begin >= end) continue;
    chunk.pieces.push_back(piece.part(begin - piece.offset, end - begin));
    if (lower.defined()) {
      chunk.pieces.back().lower = lower.narrow(0, begin - range.first, end - begin);
    }
  }
  return chunk;
}

engine::StreamedUpdate StateStream::update(int group, const std::vector<PieceView>& pieces,
                                           const std::function<void(const StateChunk&)>& update) {
  auto& largest = engine_.counters().largest_update;
  while (num_updated_ < ranges_.size() && ranges_[num_updated_].group == group) {
    const auto& range = ranges_[num_updated_];
    auto& window = windows_[num_updated_ % windows_.size()];
    updates_.wait_for(window.filled);
    updates_.run([update, chunk = chunk_of(range, window, pieces)] { update(chunk); });
    store(range, window);
    largest = std::max(largest, range.numel);
    ++num_updated_;
    fetch_next();
  }
  return {.updated = updates_.mark(), .stored = copies_out_.mark()};
}

void StateStream::finish_step() {
  check(num_updated_ == ranges_.size(),
        "an update of states in host memory ended after {} of {} chunks; the optimizer's states "
        "and its parameters are of different steps: load the last checkpoint",
        num_updated_, ranges_.size());
  ranges_.clear();
  num_fetched_ = 0;
  num_updated_ = 0;
}

void StateStream::settle() {
  copies_in_.mark().wait();
  updates_.mark().wait();
  copies_out_.mark().wait();
  ranges_.clear();
  num_fetched_ = 0;
  num_updated_ = 0;
}

}  // namespace fullshard::optim
