// SPDX-License-Identifier: Apache-2.0
#include "fullshard/report/monitor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <optional>

#include "fullshard/base/error.h"
#include "tests/errors.h"
#include "tests/files.h"
#include "tests/launch/shell.h"

namespace fullshard::report {
namespace {

using fullshard::testing::entries_of;
using fullshard::testing::file_exists;
using fullshard::testing::message_of;
using fullshard::testing::read_file;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The sum bit by bit, from the polynomial alone.
uint32_t slow_sum(const std::string& bytes) {
  uint32_t sum = ~0U;
  for (const char byte : bytes) {
    sum ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) sum = (sum >> 1) ^ ((sum & 1) != 0 ? 0x82f63b78U : 0);
  }
  return ~sum;
}

uint32_t slow_masked_sum(const std::string& bytes) {
  const uint32_t sum = slow_sum(bytes);
  return ((sum >> 15) | (sum << 17)) + 0xa282ead8U;
}

// A protobuf message as number → values, each as its bytes; numbers of varints as text.
using Fields = std::multimap<uint64_t, std::string>;

Fields fields_of(const std::string& message) {
  Fields fields;
  size_t at = 0;
  const auto varint = [&] {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(message.at(at++));
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
  };
  while (at < message.size()) {
    const uint64_t key = varint();
    if ((key & 7) == 0) {
      fields.emplace(key >> 3, std::to_string(varint()));
      continue;
    }
    const size_t bytes = (key & 7) == 1 ? 8 : (key & 7) == 5 ? 4 : varint();
    EXPECT_LE(at + bytes, message.size());
    fields.emplace(key >> 3, message.substr(at, bytes));
    at += bytes;
  }
  return fields;
}

template <class T>
T number_in(const std::string& bytes) {
  T value{};
  EXPECT_EQ(bytes.size(), sizeof(T));
  std::memcpy(&value, bytes.data(), sizeof(T));
  return value;
}

struct ReadEvents {
  std::string version{};
  std::map<std::string, std::map<int64_t, float>> values{};  // by tag and step
  std::vector<int64_t> steps{};  // of train/loss, in the order of the file
};

ReadEvents read_events(const std::string& path) {
  ReadEvents events;
  const std::string file = read_file(path);
  for (size_t at = 0; at < file.size();) {
    const auto length = number_in<uint64_t>(file.substr(at, 8));
    EXPECT_EQ(number_in<uint32_t>(file.substr(at + 8, 4)), slow_masked_sum(file.substr(at, 8)));
    const std::string message = file.substr(at + 12, length);
    EXPECT_EQ(number_in<uint32_t>(file.substr(at + 12 + length, 4)), slow_masked_sum(message));
    at += 16 + length;
    const Fields event = fields_of(message);
    EXPECT_GT(number_in<double>(event.find(1)->second), 1.7e9);  // seconds since 1970
    const int64_t step = std::stoll(event.find(2)->second);
    if (event.contains(3)) events.version = event.find(3)->second;
    if (!event.contains(5)) continue;
    for (const auto& [number, text] : fields_of(event.find(5)->second)) {
      EXPECT_EQ(number, 1U);
      const Fields value = fields_of(text);
      const std::string tag = value.find(1)->second;
      events.values[tag][step] = number_in<float>(value.find(2)->second);
      if (tag == "train/loss") events.steps.push_back(step);
    }
  }
  return events;
}

std::string events_in(const std::string& folder) {
  for (const std::string& name : entries_of(folder)) {
    if (name.starts_with("events.out.tfevents.")) return folder + "/" + name;
  }
  return {};
}

StepRecord monitored_step(int64_t step) {
  StepRecord record{.step = step, .loss = 1.0 / static_cast<double>(step), .lr = 0.25};
  record.grad_norm = 2.5;
  record.tokens_per_s = 1000;
  record.loss_scale = 8;
  record.host_peak_bytes = 1 << 20;
  return record;
}

class Monitors : public ::testing::Test {
 protected:
  MonitorOptions options() const {
    MonitorOptions options;
    options.run_folder = folder_.path();
    options.samples_per_step = 16;
    return options;
  }
  MonitorOptions events() const {
    MonitorOptions result = options();
    result.tensorboard.is_enabled = true;
    return result;
  }
  MonitorOptions csv() const {
    MonitorOptions result = options();
    result.csv.is_enabled = true;
    return result;
  }
  static void run(const MonitorOptions& options, std::initializer_list<int64_t> steps) {
    for (const auto& monitor : open_monitors(options)) {
      for (const int64_t step : steps) monitor->add(monitored_step(step));
    }
  }
  std::string csv_text(const std::string& name) const {
    return read_file(folder_.path() + "/csv/" + name);
  }

  launch::TemporaryFolder folder_;
};

TEST_F(Monitors, WriteNothingUnlessAsked) {
  EXPECT_TRUE(open_monitors(options()).empty());
  EXPECT_TRUE(entries_of(folder_.path()).empty());
}

TEST_F(Monitors, WriteEventsThatReadBack) {
  StepRecord record = monitored_step(3);
  record.eval_loss = 0.5;
  record.mfu = 0.375;
  const auto monitors = open_monitors(events());
  ASSERT_EQ(monitors.size(), 1U);
  monitors[0]->add(monitored_step(2));
  monitors[0]->add(record);
  const ReadEvents read = read_events(events_in(folder_.path() + "/tensorboard"));
  EXPECT_EQ(read.version, "brain.Event:2");
  const std::map<int64_t, float> losses = {{2, 0.5F}, {3, static_cast<float>(1.0 / 3)}};
  EXPECT_EQ(read.values.at("train/loss"), losses);
  EXPECT_EQ(read.values.at("train/learning_rate").at(3), 0.25F);
  EXPECT_EQ(read.values.at("train/grad_norm").at(3), 2.5F);
  EXPECT_EQ(read.values.at("train/mfu"), (std::map<int64_t, float>{{3, 0.375F}}));
  EXPECT_EQ(read.values.at("eval/loss"), (std::map<int64_t, float>{{3, 0.5F}}));
  EXPECT_EQ(read.values.at("train/host_peak_bytes").at(2), 1048576.0F);
  // The values over samples, as DeepSpeed names them.
  EXPECT_EQ(read.values.at("Train/Samples/train_loss"),
            (std::map<int64_t, float>{{32, 0.5F}, {48, static_cast<float>(1.0 / 3)}}));
  EXPECT_EQ(read.values.at("Train/Samples/loss_scale").at(48), 8.0F);
  EXPECT_EQ(read.values.at("Train/Samples/lr").at(48), 0.25F);
  EXPECT_FALSE(read.values.contains("train/device_peak_bytes"));
}

TEST_F(Monitors, WriteEventsOfLossesThatAreNotFinite) {
  StepRecord record = monitored_step(1);
  record.loss = std::numeric_limits<double>::quiet_NaN();
  record.grad_norm = std::numeric_limits<double>::infinity();
  open_monitors(events())[0]->add(record);
  const ReadEvents read = read_events(events_in(folder_.path() + "/tensorboard"));
  EXPECT_TRUE(std::isnan(read.values.at("train/loss").at(1)));
  EXPECT_TRUE(std::isinf(read.values.at("train/grad_norm").at(1)));
}

TEST_F(Monitors, GoOnInTheSameEventFileWhenARunIsResumed) {
  run(events(), {1, 2, 3, 4});
  MonitorOptions resumed = events();
  resumed.first_step = 2;
  run(resumed, {3, 4, 5});
  EXPECT_EQ(entries_of(folder_.path() + "/tensorboard").size(), 1U);
  const ReadEvents read = read_events(events_in(folder_.path() + "/tensorboard"));
  EXPECT_THAT(read.steps, ElementsAre(1, 2, 3, 4, 5));
  EXPECT_EQ(read.version, "brain.Event:2");
  EXPECT_EQ(read.values.at("Train/Samples/lr").size(), 5U);
}

TEST_F(Monitors, CutADamagedEventAndAllBehindItWhenARunIsResumed) {
  run(events(), {1, 2, 3});
  const std::string path = events_in(folder_.path() + "/tensorboard");
  const std::string whole = read_file(path);
  MonitorOptions resumed = events();
  resumed.first_step = 3;
  for (size_t cut = 1; cut < whole.size(); cut += 7) {
    std::string damaged = whole;
    damaged[cut] = static_cast<char>(damaged[cut] ^ 0x40);
    for (const std::string& text : {whole.substr(0, cut), damaged}) {
      std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
      run(resumed, {4});
      const ReadEvents read = read_events(path);
      ASSERT_EQ(read.version, "brain.Event:2") << cut;
      ASSERT_EQ(read.steps.back(), 4) << cut;
    }
  }
}

TEST_F(Monitors, BeginAnewWithANewRun) {
  run(events(), {1, 2, 3});
  run(csv(), {1, 2, 3});
  run(events(), {1});
  run(csv(), {1});
  EXPECT_THAT(read_events(events_in(folder_.path() + "/tensorboard")).steps, ElementsAre(1));
  EXPECT_EQ(csv_text("train_loss.csv"), "step,loss\r\n1,1\r\n");
}

TEST_F(Monitors, LeaveTheEventsOfAnotherRunInTheSameFolder) {
  MonitorOptions first = events(), second = events();
  first.tensorboard.output_path = second.tensorboard.output_path = folder_.path() + "/logs/";
  first.tensorboard.job_name = second.tensorboard.job_name = "job";
  second.run_folder = folder_.path() + "/other";
  run(first, {1, 2});
  run(second, {1});
  EXPECT_EQ(entries_of(folder_.path() + "/logs/job").size(), 2U);
}

TEST_F(Monitors, WriteCsvAsDeepSpeedLaysItOut) {
  MonitorOptions named = csv();
  named.csv.output_path = folder_.path() + "/logs";
  named.csv.job_name = "bert";
  run(named, {1, 2});
  const std::string job = folder_.path() + "/logs/bert/";
  EXPECT_EQ(read_file(job + "Train_Samples_train_loss.csv"),
            "step,train_loss\r\n16,1\r\n32,0.5\r\n");
  EXPECT_EQ(read_file(job + "Train_Samples_lr.csv"), "step,lr\r\n16,0.25\r\n32,0.25\r\n");
  EXPECT_EQ(read_file(job + "train_loss.csv"), "step,loss\r\n1,1\r\n2,0.5\r\n");
  EXPECT_FALSE(file_exists(job + "eval_loss.csv"));
  // Another run in that folder: the existing lines stay.
  run(named, {1});
  EXPECT_EQ(read_file(job + "train_loss.csv"), "step,loss\r\n1,1\r\n2,0.5\r\nstep,loss\r\n1,1\r\n");
  // And resumed: its own lines, below the last header.
  named.first_step = 1;
  run(named, {2});
  EXPECT_EQ(read_file(job + "train_loss.csv"),
            "step,loss\r\n1,1\r\n2,0.5\r\nstep,loss\r\n1,1\r\n2,0.5\r\n");
}

TEST_F(Monitors, CutCsvBehindTheCheckpointThatIsResumed) {
  run(csv(), {1, 2, 3});
  MonitorOptions resumed = csv();
  resumed.first_step = 2;
  const std::string path = folder_.path() + "/csv/train_loss.csv";
  std::ofstream(path, std::ios::app) << "4,0.2";  // a line without its end
  run(resumed, {3});
  EXPECT_EQ(read_file(path), "step,loss\r\n1,1\r\n2,0.5\r\n3,0.3333333333333333\r\n");
  EXPECT_EQ(csv_text("Train_Samples_lr.csv"), "step,lr\r\n16,0.25\r\n32,0.25\r\n48,0.25\r\n");
}

TEST_F(Monitors, NameTheFolderThatCannotBeMade) {
  std::ofstream(folder_.path() + "/file") << "x";
  MonitorOptions bad = csv();
  bad.csv.output_path = folder_.path() + "/file/below";
  EXPECT_THAT(message_of([&] { open_monitors(bad); }), HasSubstr("/file/below: cannot be made: "));
}

// The file as TensorBoard itself reads it, if a Python has it.
TEST_F(Monitors, AreReadByTensorBoardItself) {
  const char* peers = std::getenv("FULLSHARD_PEERS");
  const std::string python = peers != nullptr ? std::string(peers) + "/python3" : "python3";
  if (launch::shell(python + " -c 'import tensorboard'").status != 0) {
    GTEST_SKIP() << "no Python with tensorboard: neither python3 nor the one in the folder "
                    "FULLSHARD_PEERS has it (pip install tensorboard)";
  }
  run(events(), {1, 2, 4});
  const std::string script = folder_.write("read.py", R"(
import sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1]).Reload()
print([(e.step, e.value) for e in events.Scalars('train/loss')])
print([(e.step, e.value) for e in events.Scalars('Train/Samples/lr')])
)");
  const launch::Ended shown =
      launch::shell(python + " " + script + " " + folder_ / "tensorboard" + " 2>/dev/null");
  ASSERT_EQ(shown.status, 0);
  EXPECT_EQ(shown.output,
            "[(1, 1.0), (2, 0.5), (4, 0.25)]\n[(16, 0.25), (32, 0.25), (64, 0.25)]\n");
}

}  // namespace
}  // namespace fullshard::report
