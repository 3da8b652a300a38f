// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/gather_scope.h"

#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/engine/engine.h"

namespace fullshard {
namespace {

std::vector<engine::UnitRuntime*> find_units(const engine::Engine& engine,
                                             const std::vector<std::string>& paths) {
  std::vector<engine::UnitRuntime*> found;
  std::vector<std::string> known;
  for (const auto& unit : engine.units()) known.push_back(fmt::format("'{}'", unit->path()));
  for (const auto& unit : engine.units()) {
    const bool named = std::find(paths.begin(), paths.end(), unit->path()) != paths.end();
    if (paths.empty() || named) found.push_back(unit.get());
  }
  check(paths.empty() || found.size() == paths.size(),
        "gather_full: no unit at one of {}; the units are {}", fmt::join(paths, ", "),
        fmt::join(known, ", "));
  return found;
}

}  // namespace

GatherScope::GatherScope(std::shared_ptr<engine::Engine> engine, const GatherOptions& options)
    : write_back_(options.write_back), uncaught_(std::uncaught_exceptions()) {
  engine->check_awake("gather_full");
  check(engine->open_scopes == 0, "gather_full: a scope is open already; close it first");
  if (engine->phase() == engine::Phase::backward) engine->recover();
  units_ = find_units(*engine, options.units);
  engine->take_in_steps();
  engine_ = std::move(engine);
  ++engine_->open_scopes;
  try {
    gather();
  } catch (...) {  // no destructor runs for a scope that was never made
    release();
    throw;
  }
}

void GatherScope::gather() {
  if (write_back_) {
    engine_->settle_updates();
    engine_->settle_readers();
  }
  for (auto* unit : units_) {
    for (const auto& group : unit->groups()) group->check_untouched();
    unit->unshard();
    if (!write_back_) continue;
    for (const auto& group : unit->groups()) group->begin_write();
  }
}

GatherScope::GatherScope(GatherScope&& other) noexcept
    : engine_(std::move(other.engine_)),
      write_back_(other.write_back_),
      units_(std::move(other.units_)),
      uncaught_(other.uncaught_) {}

void GatherScope::release() noexcept {
  --engine_->open_scopes;
  for (auto* unit : units_) {
    try {
      if (write_back_) {
        for (const auto& group : unit->groups()) group->abandon_write();
      }
      unit->reshard();
    } catch (const std::exception& error) {
      spdlog::error("gather_full: {}", error.what());
    }
  }
  engine_.reset();
}

// A rank that writes the full parameters to a slow disk is not late.
void GatherScope::meet() const {
  engine_->mesh().everyone().limited_by(TimeLimit::none).barrier("gather_full");
}

// All is looked at before the first value is taken: a scope that fails changes nothing.
void GatherScope::take_written() const {
  for (auto* unit : units_) {
    for (const auto& group : unit->groups()) group->check_written();
  }
  for (auto* unit : units_) {
    for (const auto& group : unit->groups()) group->finish_write();
  }
}

void GatherScope::check_untouched() const {
  for (auto* unit : units_) {
    for (const auto& group : unit->groups()) group->check_untouched();
  }
}

void GatherScope::close() {
  if (!engine_) return;
  try {
    meet();
    if (write_back_) {
      take_written();
    } else {
      check_untouched();
    }
  } catch (...) {
    release();
    throw;
  }
  if (write_back_ && units_.size() == engine_->units().size()) engine_->set_has_values(true);
  release();
}

GatherScope::~GatherScope() {
  if (!engine_) return;
  const bool failing = std::uncaught_exceptions() > uncaught_;
  if (failing) {
    release();
    return;
  }
  try {
    close();
  } catch (const std::exception& error) {
    spdlog::error("{}", error.what());
  }
}

}  // namespace fullshard
