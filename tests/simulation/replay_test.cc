// SPDX-License-Identifier: Apache-2.0
// Schedules made by hand, with times that can be added up by hand.
#include "fullshard/simulation/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

namespace fullshard::simulation {
namespace {

using Kind = tensor::OperatorKind;

constexpr comm::GroupShape kOneHost{2, 2}, kTwoHosts{2, 1};

// So many seconds each.
ScheduledTask kernel(int seconds, int64_t stream = 0, Kind kind = Kind::memory) {
  return {.kind = TaskKind::kernel,
          .stream = stream,
          .op = {.name = "kernel", .kind = kind, .bytes = seconds}};
}
ScheduledTask gather(int64_t number, int seconds, const std::string& group = "shards",
                     comm::GroupShape shape = kOneHost) {
  return {.kind = TaskKind::collective,
          .number = number,
          .call = {.group = group, .label = "unit 'a'", .bytes = seconds, .shape = shape}};
}
ScheduledTask wait_for(int64_t number) { return {.kind = TaskKind::wait, .number = number}; }
ScheduledTask mark(int64_t event, int64_t stream) {
  return {.kind = TaskKind::mark, .stream = stream, .number = event};
}
ScheduledTask hold(int64_t event, int64_t stream) {
  return {.kind = TaskKind::hold, .stream = stream, .number = event};
}

ScheduledTask disk(int64_t number, int seconds) {
  return {.kind = TaskKind::disk, .number = number, .op = {.name = "read", .bytes = seconds}};
}
ScheduledTask wait_for_disk(int64_t number) {
  return {.kind = TaskKind::wait_disk, .number = number};
}

// A collective of "replicas" takes half of what others take of the kernels beside it.
Replay replayed(std::vector<ScheduledTask> tasks, double share = 0, size_t last_step = 0) {
  const TaskCosts costs{
      .kernel = [](const tensor::OperatorCall& call) { return static_cast<double>(call.bytes); },
      .collective = [](const Collective& call) { return static_cast<double>(call.bytes); },
      .disk = [](int64_t bytes) { return static_cast<double>(bytes); },
      .share =
          [share](const Collective& call) { return call.group == "replicas" ? share / 2 : share; }};
  return replay({std::move(tasks), last_step}, costs);
}

TEST(Replay, HidesAGatherUnderAKernel) {
  const auto found = replayed({gather(1, 3), kernel(5), wait_for(1), kernel(2)});
  EXPECT_EQ(found.step_seconds, 7);
  EXPECT_EQ(found.exposed_communication, 0);
  EXPECT_EQ(found.communication, 3);
  EXPECT_EQ(found.kernels, 7);
}

TEST(Replay, ExposesWhatAGatherTakesLonger) {
  const auto found = replayed({gather(1, 8), kernel(5), wait_for(1), kernel(2)});
  EXPECT_EQ(found.step_seconds, 10);
  EXPECT_EQ(found.exposed_communication, 3);
}

TEST(Replay, StartsACollectiveBehindItsCaller) {
  const auto found = replayed({kernel(4), gather(1, 3), wait_for(1)});
  EXPECT_EQ(found.step_seconds, 7);
  EXPECT_EQ(found.exposed_communication, 3);
}

TEST(Replay, LetsGroupsTakeTurnsOnALinkAndOnlyThere) {
  const auto one_link =
      replayed({gather(1, 4, "shards"), gather(2, 4, "everyone"), wait_for(1), wait_for(2)});
  EXPECT_EQ(one_link.step_seconds, 8);
  const auto two_links = replayed(
      {gather(1, 4, "shards"), gather(2, 4, "replicas", kTwoHosts), wait_for(1), wait_for(2)});
  EXPECT_EQ(two_links.step_seconds, 4);
}

TEST(Replay, OrdersStreamsByEvents) {
  const auto found = replayed(
      {kernel(4, /*stream=*/1, Kind::to_device), mark(7, 1), kernel(1), hold(7, 0), kernel(2)});
  EXPECT_EQ(found.step_seconds, 6);
  EXPECT_EQ(found.exposed_copies, 3);
  EXPECT_EQ(found.exposed_communication, 0);
}

// Two transfers share the disk; what is issued behind a wait for the first begins then.
TEST(Replay, HoldsTheHostBehindADisk) {
  const auto found = replayed({disk(1, 3), disk(2, 4), kernel(1), wait_for_disk(1), kernel(1),
                               wait_for_disk(2), kernel(1)});
  EXPECT_EQ(found.step_seconds, 8);
  EXPECT_EQ(found.exposed_copies, 5);
  EXPECT_EQ(found.kernels, 3);
}

TEST(Replay, HoldsTheHostBehindAnEvent) {
  const auto found = replayed({kernel(5, 1),
                               mark(1, 1),
                               {.kind = TaskKind::hold_host, .number = 1},
                               kernel(1),
                               disk(1, 2),
                               wait_for_disk(1),
                               kernel(1)});
  EXPECT_EQ(found.step_seconds, 8);
}

TEST(Replay, CarriesOneCopyAtATimeInEachDirection) {
  const auto same_way = replayed(
      {kernel(4, 1, Kind::to_device), kernel(4, 2, Kind::to_device), mark(1, 2), hold(1, 0)});
  EXPECT_EQ(same_way.step_seconds, 8);
  const auto both_ways = replayed(
      {kernel(4, 1, Kind::to_device), kernel(4, 2, Kind::to_host), mark(1, 2), hold(1, 0)});
  EXPECT_EQ(both_ways.step_seconds, 4);
}

TEST(Replay, SlowsKernelsBesideACollective) {
  // Half of the first four seconds is the collective's: two are left to do after it.
  const auto found = replayed({gather(1, 4), kernel(4), wait_for(1)}, /*share=*/0.5);
  EXPECT_EQ(found.step_seconds, 6);
  EXPECT_EQ(replayed({gather(1, 4), kernel(1), wait_for(1)}, 0.5).step_seconds, 4);
  // Two at once take no more than the greedier one, and no more than its time.
  EXPECT_EQ(
      replayed({gather(1, 4), gather(2, 4, "replicas", kTwoHosts), kernel(4)}, 0.5).step_seconds,
      6);
  EXPECT_EQ(
      replayed({gather(1, 2), gather(2, 4, "replicas", kTwoHosts), kernel(4)}, 0.5).step_seconds,
      5.5);
  // All of it: the kernel waits.
  EXPECT_EQ(replayed({gather(1, 4), kernel(3), wait_for(1)}, 1).step_seconds, 7);
}

TEST(Replay, CountsTheLastStepAndWhatTheOneBeforeLeft) {
  // The copy of the first step is still under way when the second needs it.
  const auto found = replayed({kernel(1), kernel(5, 1, Kind::to_device), mark(3, 1),
                               /*second step*/ kernel(1), hold(3, 0), kernel(1)},
                              0, 3);
  EXPECT_EQ(found.step_seconds, 5);
  EXPECT_EQ(found.exposed_copies, 3);
  EXPECT_EQ(found.kernels, 2);
}

TEST(TraceEvents, HaveATrackPerStreamWithoutOverlaps) {
  const auto found = replayed({gather(1, 8), kernel(5), wait_for(1), gather(2, 3, "everyone"),
                               kernel(4, 1, Kind::to_device), kernel(2), wait_for(2)});
  const auto trace = nlohmann::json::parse(report::trace_events(found.spans, "compute"));
  std::map<int, double> ends;
  std::map<int, std::string> names;
  size_t num_spans = 0;
  for (const auto& event : trace["traceEvents"]) {
    const int track = event["tid"];
    if (event["ph"] == "M") {
      names[track] = event["args"]["name"];
      continue;
    }
    ++num_spans;
    EXPECT_GE(event["ts"].get<double>(), ends[track]);
    ends[track] = event["ts"].get<double>() + event["dur"].get<double>();
  }
  EXPECT_EQ(num_spans, 5u);
  std::vector<std::string> tracks;
  for (const auto& [number, name] : names) tracks.push_back(name);
  EXPECT_THAT(tracks, ::testing::ElementsAre("compute", "shards", "everyone", "copies in"));
}

}  // namespace
}  // namespace fullshard::simulation
