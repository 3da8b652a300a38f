// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/sleep.h"

#include <ATen/core/grad_mode.h>

#include <chrono>

#include "fullshard/base/error.h"
#include "fullshard/engine/engine.h"
#include "fullshard/memory/device_memory.h"
#include "fullshard/memory/host_memory.h"
#include "fullshard/memory/relocation.h"

namespace fullshard::engine {
namespace {

// What changes in the ledger, and how long that takes.
class Reported {
 public:
  using Clock = std::chrono::steady_clock;
  Reported(const Ledger& ledger, Clock::time_point start)
      : ledger_(ledger),
        device_(ledger.held_total(tiers::Tier::device)),
        host_(ledger.held_total(tiers::Tier::host)),
        start_(start) {}

  // By which less lies on the device, and more on the host.
  SleepReport moved_to_host() const {
    const std::chrono::duration<double> seconds = Clock::now() - start_;
    return {.device_bytes = device_ - ledger_.held_total(tiers::Tier::device),
            .host_bytes = ledger_.held_total(tiers::Tier::host) - host_,
            .seconds = seconds.count()};
  }

 private:
  const Ledger& ledger_;
  int64_t device_, host_;
  Clock::time_point start_;
};

// Where the tensor is seen by everybody who has it.
void relocate(std::vector<OwnedState>& states, const memory::Relocation& relocation) {
  for (auto& [memory, tensor] : states) {
    relocation.move(memory);
    tensor.set_data(memory.as(tensor.numel(), tensor.scalar_type()));
  }
}

bool has_memory_of_its_own(const Engine& engine) {
  return !engine.mesh().world().device().is_cpu() || engine.options().offload.streams_on_cpu;
}

}  // namespace

SleepReport Sleep::begin(Engine& engine, std::vector<OwnedState>& states) {
  check(!engine.is_asleep(), "sleep(): the model sleeps already; call wake() first");
  if (engine.is_stepped_by_torch() || !engine.piece_holders().is_empty()) {
    fail_as(ErrorKind::usage,
            "sleep(): a torch optimizer steps this model, and holds tensors that look at its "
            "masters; use an optimizer of fullshard's");
  }
  const at::NoGradGuard no_grad;
  const auto start = Reported::Clock::now();
  engine.come_to_rest("sleep()");  // what it has gathered would go anyway
  const Reported reported(*engine.ledger(), start);
  if (has_memory_of_its_own(engine)) {
    const auto device = engine.mesh().world().device();
    memory::synchronise(device);
    // Pageable: pinning takes longer than these two copies gain by it.
    host_ = std::make_shared<memory::Pool>(memory::host_memory_source({}), engine.ledger(),
                                           tiers::Tier::host, memory::Returned::freed);
    const memory::Relocation relocation(*engine.pool(), *host_);
    engine.leave_device(relocation);
    relocate(states, relocation);
    memory::release_unused(device);
  }
  engine.set_asleep(true);
  return reported.moved_to_host();
}

SleepReport Sleep::end(Engine& engine, std::vector<OwnedState>& states) {
  check(engine.is_asleep(), "wake(): the model does not sleep; call sleep() first");
  const at::NoGradGuard no_grad;
  const Reported reported(*engine.ledger(), Reported::Clock::now());
  if (host_) {
    const memory::Relocation relocation(*host_, *engine.pool());
    engine.return_to_device(relocation);
    relocate(states, relocation);
    host_.reset();
  }
  engine.set_asleep(false);
  auto report = reported.moved_to_host();
  report.device_bytes = -report.device_bytes;
  report.host_bytes = -report.host_bytes;
  return report;
}

}  // namespace fullshard::engine
