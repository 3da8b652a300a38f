// SPDX-License-Identifier: Apache-2.0
#include "fullshard/launch/meeting_watch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "fullshard/base/error.h"
#include "fullshard/base/rank_notice.h"

namespace fullshard::launch {

MeetingWatch::MeetingWatch() {
  int ends[2];
  const bool is_made = ::pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0;
  const int reason = errno;
  check(is_made, "launch: cannot make a pipe: {}", std::strerror(reason));
  own_ = ends[0];
  ranks_ = ends[1];
}

MeetingWatch::~MeetingWatch() {
  ::close(own_);
  ::close(ranks_);
}

std::string MeetingWatch::variable() const {
  struct stat facts = {};
  ::fstat(ranks_, &facts);
  return fmt::format("{}:{}", ranks_, facts.st_ino);
}

void MeetingWatch::read() {
  char said[256];
  for (ssize_t got; (got = ::read(own_, said, sizeof said)) > 0;) {
    const auto count = [&](base::RankNotice notice) {
      return static_cast<int>(std::count(said, said + got, static_cast<char>(notice)));
    };
    num_begun_ += count(base::RankNotice::begins_to_meet);
    num_met_ += count(base::RankNotice::has_met);
    is_accepted_ = is_accepted_ || count(base::RankNotice::accepts_folder) > 0;
    has_read_config_ = has_read_config_ || count(base::RankNotice::has_read_config) > 0;
    has_sharded_ = has_sharded_ || count(base::RankNotice::has_sharded_a_model) > 0;
  }
}

}  // namespace fullshard::launch
