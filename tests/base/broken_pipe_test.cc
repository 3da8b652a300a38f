// SPDX-License-Identifier: Apache-2.0
#include "fullshard/base/broken_pipe.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

namespace fullshard::base {
namespace {

// Writes to a pipe that nobody reads; without the scope this ends the process.
int error_of_a_write() {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  ::close(ends[0]);
  const bool failed = ::write(ends[1], "x", 1) < 0;
  const int error = failed ? errno : 0;
  ::close(ends[1]);
  return error;
}

TEST(NoBrokenPipe, TurnsTheSignalIntoAnErrorHereAndInThreadsStartedHere) {
  {
    const NoBrokenPipe scope;
    EXPECT_EQ(error_of_a_write(), EPIPE);
    int in_thread = 0;
    std::thread([&] { in_thread = error_of_a_write(); }).join();
    EXPECT_EQ(in_thread, EPIPE);
  }
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  EXPECT_EQ(sigismember(&mask, SIGPIPE), 0);
}

TEST(NoBrokenPipe, LeavesTheSignalToTheProgramOutside) {
  EXPECT_EXIT(
      {
        { const NoBrokenPipe scope; }
        error_of_a_write();
        std::exit(0);
      },
      ::testing::KilledBySignal(SIGPIPE), "");
}

}  // namespace
}  // namespace fullshard::base
