// SPDX-License-Identifier: Apache-2.0
#include "fullshard/optim/host_step.h"

#include <ATen/core/grad_mode.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <utility>

namespace fullshard::optim {
namespace {

template <class Copies>
void make_copies(const Copies& copies) {
  for (const auto& copy : copies) copy.to.copy_(copy.from, /*non_blocking=*/true);
}

template <class Copies>
int64_t total_of(const Copies& copies) {
  int64_t bytes = 0;
  for (const auto& copy : copies) bytes += static_cast<int64_t>(copy.to.nbytes());
  return bytes;
}

}  // namespace

HostStep::HostStep(engine::Engine& engine)
    : engine_(engine),
      mirrors_(engine.trainable_groups().size()),
      copies_down_(engine.mesh().world().device()),
      copies_up_(engine.mesh().world().device()),
      thread_(engine.mesh().world().device()) {
  engine_.enter_stream(*this);
}

// As StateStream: what a CPU device has not done belongs to an optimizer that is gone.
HostStep::~HostStep() {
  engine_.leave_stream(*this);
  if (engine_.mesh().world().device().is_cpu()) return;
  try {
    settle();
  } catch (const std::exception& error) {
    spdlog::error("optimizer step on the host: {}", error.what());
  }
}

bool HostStep::steps(int group) const {
  return engine_.trainable_groups().at(static_cast<size_t>(group))->spec().residence.stepped_on ==
         tiers::Tier::host;
}

void HostStep::start_step(const at::Tensor& factor_on_device) {
  factor_ = factor_on_device.defined()
                ? std::make_shared<const memory::HostNumber>(factor_on_device)
                : nullptr;
}

// As it is, or its place in a copy of the whole shard, which is made once and stays.
at::Tensor HostStep::on_host(memory::Block& mirror, const PieceView& piece,
                             const at::Tensor& values) const {
  if (!values.defined() || values.is_cpu()) return values;
  const auto* group = engine_.trainable_groups()[static_cast<size_t>(piece.group)];
  const int64_t numel = group->layout().shard_numel();
  if (!mirror) {
    mirror = engine_.tiers().host()->take(numel * values.element_size(), tiers::Purpose::optimizer);
  }
  return mirror.as(numel, values.scalar_type()).narrow(0, piece.offset, piece.numel());
}

HostStep::Visit HostStep::visit(int group, const std::vector<PieceView>& pieces) {
  auto& mirrors = mirrors_.at(static_cast<size_t>(group));
  Visit visit;
  for (const auto& piece : pieces) {
    if (piece.numel() == 0 || !piece.gradient.defined()) continue;
    auto view = piece;
    const auto bring = [&](memory::Block& mirror, at::Tensor& values, bool is_read,
                           bool is_written) {
      const auto theirs = values;
      values = on_host(mirror, piece, theirs);
      if (values.is_same(theirs)) return;
      if (is_read) visit.down.push_back({values, theirs});
      if (is_written) visit.up.push_back({theirs, values});
    };
    bring(mirrors.master, view.master, true, true);
    bring(mirrors.lower, view.lower, true, true);
    bring(mirrors.shown, view.shown, view.lower.defined(), true);
    bring(mirrors.gradient, view.gradient, true, false);
    visit.pieces.push_back(std::move(view));
  }
  return visit;
}

engine::StreamedUpdate HostStep::update(int group, const std::vector<PieceView>& pieces,
                                        double factor, const MakeStep& make) {
  auto visit = this->visit(group, pieces);
  std::vector<PieceStep> steps;
  for (const auto& piece : visit.pieces) steps.push_back(make(piece));
  engine_.counters().states_copied_out += total_of(visit.down);
  engine_.counters().states_copied_in += total_of(visit.up);
  const auto issued = memory::LaneMark::of_caller(engine_.mesh().world().device());
  if (!visit.down.empty()) {
    copies_down_.wait_for(issued);
    copies_down_.run([&visit] { make_copies(visit.down); });
  }
  const auto* away = engine_.trainable_groups()[static_cast<size_t>(group)]->gradients().away();
  const auto left = away != nullptr ? away->left() : memory::LaneMark();
  auto work = [this, factor, issued, left, visit = std::move(visit), steps = std::move(steps),
               number = factor_, arrived = copies_down_.mark()] {
    const at::NoGradGuard no_grad;
    left.wait();
    arrived.wait();
    const double counts = number ? number->wait() : factor;
    if (!std::isfinite(counts)) return memory::LaneMark();
    for (const auto& step : steps) step(counts);
    if (visit.up.empty()) return memory::LaneMark();
    copies_up_.wait_for(issued);
    copies_up_.run([&visit] { make_copies(visit.up); });
    return copies_up_.mark();
  };
  const auto updated = thread_.run(std::move(work));
  return {.updated = updated, .stored = updated};
}

void HostStep::settle() { thread_.mark().wait(); }

}  // namespace fullshard::optim
