#include "fullshard/checkpoint/async_saver.h"

#include "fullshard/checkpoint/running_save.h"
#include "fullshard/checkpoint/snapshot.h"

namespace fullshard {

AsyncSaver::AsyncSaver() : snapshot_(std::make_unique<Snapshot>()) {}
AsyncSaver::~AsyncSaver() = default;

int64_t AsyncSaver::snapshot_bytes() const { return snapshot_->bytes(); }

void AsyncSaver::save(const std::string& folder, const ShardedModel& model,
                      const Optimizer& optimizer, const Progress& progress,
                      const CheckpointOptions& options) {
  finish();
  running_ =
      std::make_unique<RunningSave>(folder, model, &optimizer, progress, options, snapshot_.get());
}

void AsyncSaver::advance(std::chrono::milliseconds patience) {
  try {
    if (running_->poll(patience)) running_.reset();
  } catch (...) {
    running_.reset();
    throw;
  }
}

void AsyncSaver::poll() {
  if (running_) advance(std::chrono::milliseconds(0));
}

void AsyncSaver::finish() {
  while (running_) advance(std::chrono::seconds(1));
}

}  // namespace fullshard
