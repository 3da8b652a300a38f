// Tells `fullshard launch` whether the ranks have met. Before that none of them can notice that
// another is gone, so that the launcher need not wait for what they have to say of it.
#pragma once

namespace fullshard {

// Tells it that the run may begin in its folder, so that the logs there can be replaced. For every
// rank, when rank 0 has looked.
void tell_launcher_run_is_accepted();

// Says that this process begins to look for the others, and by met() that it has found them. Where
// nobody launched it so (FULLSHARD_MEETING), it says nothing.
class MeetingNotice {
 public:
  MeetingNotice();
  void met() const;

 private:
  int pipe_ = -1;
};

}  // namespace fullshard
