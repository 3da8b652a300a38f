// SPDX-License-Identifier: Apache-2.0
// Whether the ranks of this host have met: they say so through a pipe (base/rank_notice). Until
// then none of them can notice that another is gone. The same pipe carries their other notices.
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
  int ranks_descriptor() const { return ranks_; }  // the end that ranks inherit
  std::string variable() const;                    // the value of FULLSHARD_MEETING

  // Reads what ranks have written.
  void read();
  int num_begun() const { return num_begun_; }
  int num_met() const { return num_met_; }
  bool is_accepted() const { return is_accepted_; }
  bool has_read_config() const { return has_read_config_; }
  bool has_sharded() const { return has_sharded_; }  // rank 0 has, if it is on this host

 private:
  int own_ = -1, ranks_ = -1;
  int num_begun_ = 0, num_met_ = 0;
  bool is_accepted_ = false, has_read_config_ = false, has_sharded_ = false;
};

}  // namespace fullshard::launch
