// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/late_notice.h"

#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <sstream>

namespace fullshard::comm {
namespace {

using std::chrono::seconds;

// What is logged while it lives.
class Logged {
 public:
  Logged() : before_(spdlog::default_logger()) {
    auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(text_);
    auto logger = std::make_shared<spdlog::logger>("logged", sink);
    logger->set_pattern("%v");
    spdlog::set_default_logger(logger);
  }
  ~Logged() { spdlog::set_default_logger(before_); }
  std::string text() const { return text_.str(); }

 private:
  std::shared_ptr<spdlog::logger> before_;
  std::ostringstream text_;
};

TEST(LateNotice, NamesTheRankWhatItDidLastAndTheLimitOnceAMinute) {
  const Logged logged;
  LateNotice notice;
  const auto say = [&](int rank) {
    notice.say("rank 0: all_gather of save_checkpoint (group world, sequence 7)", rank, seconds(5),
               "its last act: barrier (sequence 3), finished", seconds(600));
  };
  say(2);
  say(2);
  const std::string first =
      "rank 0: all_gather of save_checkpoint (group world, sequence 7) has waited 5 s for "
      "rank 2; its last act: barrier (sequence 3), finished; it is given up after 600 s\n";
  EXPECT_EQ(logged.text(), first);
  say(1);
  EXPECT_EQ(logged.text().substr(first.size()).find("rank 0: all_gather"), 0u);
}

TEST(LateNotice, SaysWhereARankMayTakeItsTime) {
  const Logged logged;
  LateNotice().say("rank 1: barrier of gather_full", 0, seconds(5), "its last act: none yet",
                   kNoLimit);
  EXPECT_EQ(logged.text(),
            "rank 1: barrier of gather_full has waited 5 s for rank 0; its last act: none "
            "yet; no timeout applies\n");
}

}  // namespace
}  // namespace fullshard::comm
