// SPDX-License-Identifier: Apache-2.0
#include "fullshard/checkpoint/async_saver.h"

#include <utility>

#include "fullshard/checkpoint/device_snapshot.h"
#include "fullshard/checkpoint/running_save.h"
#include "fullshard/engine/engine_access.h"
#include "fullshard/stored/blocks/buffer_pool.h"

namespace fullshard {

// Lets whatever changes the model first copy what is not written yet.
class AsyncSaver::Reader : public engine::MasterReader {
 public:
  Reader(ShardedModel model, checkpoint::RunningSave& save, stored::BufferPool& copies)
      : model_(std::move(model)), save_(save), copies_(copies) {
    engine::EngineAccess::of(model_).enter_reader(*this);
  }
  ~Reader() override { engine::EngineAccess::of(model_).leave_reader(*this); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  void settle() override {
    if (is_settled_) return;
    save_.settle(copies_);
    is_settled_ = true;
  }

 private:
  ShardedModel model_;
  checkpoint::RunningSave& save_;
  stored::BufferPool& copies_;
  bool is_settled_ = false;
};

AsyncSaver::AsyncSaver() : AsyncSaver(nullptr) {}
AsyncSaver::AsyncSaver(std::unique_ptr<checkpoint::DeviceSnapshot> device)
    : copies_(std::make_unique<stored::BufferPool>(stored::kWriteBytes)),
      device_(std::move(device)) {}
AsyncSaver::~AsyncSaver() = default;

int64_t AsyncSaver::copied_bytes() const {
  return copies_->bytes() + (device_ ? device_->windows->bytes() : 0);
}

void AsyncSaver::start(const std::string& folder, const ShardedModel& model,
                       const Optimizer& optimizer, const Progress& progress,
                       const CheckpointOptions& options) {
  finish();
  if (!device_) {
    device_ = checkpoint::make_device_snapshot(model.mesh().world().device(),
                                               engine::EngineAccess::of(model).ledger());
  }
  running_ = std::make_unique<checkpoint::RunningSave>(
      folder, model, optim::states_of(model, optimizer), progress, options, true, device_.get());
  reader_ = std::make_unique<Reader>(model, *running_, *copies_);
}

void AsyncSaver::settle() {
  if (reader_) reader_->settle();
}

void AsyncSaver::save(const std::string& folder, const ShardedModel& model,
                      const Optimizer& optimizer, const Progress& progress,
                      const CheckpointOptions& options) {
  start(folder, model, optimizer, progress, options);
  settle();
}

void AsyncSaver::advance(std::chrono::milliseconds patience) {
  try {
    if (running_->poll(patience)) end();
  } catch (...) {
    end();
    throw;
  }
}

void AsyncSaver::end() {
  reader_.reset();
  running_.reset();
}

void AsyncSaver::poll() {
  if (running_) advance(std::chrono::milliseconds(0));
}

void AsyncSaver::finish() {
  while (running_) advance(std::chrono::seconds(1));
}

}  // namespace fullshard
