// SPDX-License-Identifier: Apache-2.0
// Whether the ranks of this host have met: they say so through a pipe (comm/store/meeting_notice).
// Until then none of them can notice that another is gone. Through the same pipe they say that a
// run may begin in its folder.
#pragma once

#include <string>

namespace fullshard::launch {

class MeetingWatch {
 public:
  MeetingWatch();
  ~MeetingWatch();
  MeetingWatch(const MeetingWatch&) = delete;
  MeetingWatch& operator=(const MeetingWatch&) = delete;

  int descriptor() const { return own_; }          // to be polled
  int ranks_descriptor() const { return ranks_; }  // that they inherit
  std::string variable() const;                    // the value of FULLSHARD_MEETING

  // Takes in what has been said.
  void read();
  int num_begun() const { return num_begun_; }
  int num_met() const { return num_met_; }
  bool is_accepted() const { return is_accepted_; }

 private:
  int own_ = -1, ranks_ = -1;
  int num_begun_ = 0, num_met_ = 0;
  bool is_accepted_ = false;
};

}  // namespace fullshard::launch
