// SPDX-License-Identifier: Apache-2.0
// The stand-in device itself: what it promises tests.
#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fullshard/memory/device_graph.h"
#include "fullshard/memory/recorded_event.h"
#include "tests/errors.h"
#include "tests/gpu.h"
#include "tests/stand_in/device/device_memory.h"

namespace fullshard::testing {
namespace {

using memory::RecordedEvent;
using ::testing::HasSubstr;

const auto kOnGpu = at::TensorOptions(kGpu);

c10::Stream new_stream() { return c10::impl::VirtualGuardImpl(kGpu.type()).getNewStream(kGpu); }

at::Tensor pinned(const at::Tensor& values) {
  auto copy = at::empty(values.sizes(), values.options().pinned_memory(true));
  copy.copy_(values);
  return copy;
}

TEST(StandInDevice, ComputesAsTheCpuDoes) {
  const auto x = at::randn({5, 7}), y = at::randn({7, 3});
  const auto on_gpu = at::matmul(x.to(kGpu), y.to(kGpu)).relu().sum(0);
  EXPECT_TRUE(on_gpu.is_cuda());
  EXPECT_TRUE(at::equal(on_gpu.cpu(), at::matmul(x, y).relu().sum(0)));
  const auto sorted = std::get<0>(x.to(kGpu).t().sort(0));
  EXPECT_TRUE(at::equal(sorted.cpu(), std::get<0>(x.t().sort(0))));
}

TEST(StandInDevice, DifferentiatesAsTheCpuDoes) {
  const auto on_cpu = at::randn({4, 6}).requires_grad_();
  const auto on_gpu = on_cpu.detach().to(kGpu).requires_grad_();
  on_cpu.softmax(-1).square().mean().backward();
  on_gpu.softmax(-1).square().mean().backward();
  EXPECT_TRUE(at::equal(on_gpu.grad().cpu(), on_cpu.grad()));
}

TEST(StandInDeviceDeathTest, HasMemoryThatTheHostCannotTouch) {
  const auto values = at::zeros({4}, kOnGpu);
  EXPECT_DEATH(static_cast<void>(*static_cast<volatile float*>(values.data_ptr())), "");
  EXPECT_EQ(values.sum().item<float>(), 0);
}

TEST(StandInDevice, MakesNanOfWhatIsFreed) {
  auto values = at::zeros({100}, kOnGpu);
  const auto* freed =
      static_cast<float*>(stand_in::DeviceMemory::instance().for_device(values.const_data_ptr()));
  EXPECT_EQ(freed[99], 0);
  values.reset();
  EXPECT_TRUE(std::isnan(freed[99]));
}

TEST(StandInDevice, DoesTheWorkOfOtherStreamsWhenSomebodyWaits) {
  const auto target = at::zeros({3}, kOnGpu);
  const auto source = pinned(at::ones({3}));
  const auto stream = new_stream();
  RecordedEvent::of_caller(kGpu).hold(stream);
  {
    const c10::StreamGuard guard(stream);
    target.copy_(source, /*non_blocking=*/true);
  }
  const RecordedEvent copied(stream);
  EXPECT_EQ(target.sum().item<float>(), 0);  // nobody waited for it
  copied.hold(memory::current_stream(kGpu));
  EXPECT_EQ(target.sum().item<float>(), 3);
}

TEST(StandInDevice, OrdersStreamsByEvents) {
  const auto first = new_stream(), second = new_stream();
  const auto numbers = at::zeros({2}, kOnGpu);
  const auto ones = pinned(at::ones({1}));
  {
    const c10::StreamGuard guard(first);
    numbers.narrow(0, 0, 1).copy_(ones, true);
  }
  const RecordedEvent written(first);
  written.hold(second);
  {
    const c10::StreamGuard guard(second);
    numbers.narrow(0, 1, 1).copy_(numbers.narrow(0, 0, 1), true);
  }
  RecordedEvent(second).wait();
  EXPECT_EQ(numbers[1].item<float>(), 1);
}

TEST(StandInDevice, AnswersForEventsThatAreAskedAgainAndAgain) {
  const auto stream = new_stream();
  const auto values = at::zeros({1}, kOnGpu);
  const auto ones = pinned(at::ones({1}));
  {
    const c10::StreamGuard guard(stream);
    values.copy_(ones, true);
  }
  const RecordedEvent event(stream, RecordedEvent::Timing::on);
  EXPECT_FALSE(event.has_passed());
  EXPECT_TRUE(event.has_passed());
  EXPECT_GE(event.seconds_until(RecordedEvent::of_caller(kGpu, RecordedEvent::Timing::on)), 0);
}

TEST(StandInDevice, ShowsMemoryThatWasFreedUnderAStream) {
  const auto stream = new_stream();
  const auto host = pinned(at::zeros({8}));
  {
    const auto values = at::ones({8}, kOnGpu);
    RecordedEvent::of_caller(kGpu).hold(stream);
    const c10::StreamGuard guard(stream);
    host.copy_(values, true);
  }  // freed, and nobody was told that the stream still reads it
  RecordedEvent(stream).wait();
  EXPECT_TRUE(host.isnan().all().item<bool>());
}

TEST(StandInDevice, KeepsMemoryForStreamsThatItWasToldOf) {
  const auto stream = new_stream();
  const auto host = pinned(at::zeros({8}));
  {
    const auto values = at::ones({8}, kOnGpu);
    RecordedEvent::of_caller(kGpu).hold(stream);
    const c10::StreamGuard guard(stream);
    host.copy_(values, true);
    values.record_stream(stream);
  }
  at::zeros({8}, kOnGpu).add_(1);  // would take the memory, if it were free
  RecordedEvent(stream).wait();
  EXPECT_TRUE(at::equal(host, at::ones({8})));
}

TEST(StandInDevice, RepeatsWhatAGraphWasGiven) {
  const auto input = at::ones({4}, kOnGpu), sum = at::zeros({}, kOnGpu);
  at::Tensor doubled;
  memory::DeviceGraph graph(kGpu);
  graph.capture([&] {
    doubled = input * 2;
    sum.add_(doubled.sum());
  });
  EXPECT_EQ(sum.item<float>(), 0);  // nothing ran
  graph.replay();
  input.fill_(10);
  graph.replay();
  EXPECT_EQ(sum.item<float>(), 8 + 80);
  EXPECT_EQ(doubled.sum().item<float>(), 80);
}

TEST(StandInDevice, RefusesInAGraphWhatCudaRefuses) {
  const auto values = at::ones({4}, kOnGpu);
  const auto stream = new_stream();
  const RecordedEvent before(stream);
  const auto captured = [](const std::function<void()>& issue) {
    memory::DeviceGraph(kGpu).capture(issue);
  };
  EXPECT_THAT(message_of([&] { captured([&] { values.sum().item<float>(); }); }),
              HasSubstr("reading a number while a stream is captured"));
  EXPECT_THAT(message_of([&] { captured([&] { before.hold(memory::current_stream(kGpu)); }); }),
              HasSubstr("not of the graph that is captured"));
  EXPECT_THAT(message_of([&] { captured([&] { static_cast<void>(before.has_passed()); }); }),
              HasSubstr("asking for an event while"));
  EXPECT_EQ(values.sum().item<float>(), 4);  // all is as before
}

}  // namespace
}  // namespace fullshard::testing
