// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/run/interruption.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ctime>
#include <functional>

namespace fullshard::train {
namespace {

// The status of a process that does this.
int status_of_process(const std::function<void()>& act) {
  const pid_t child = ::fork();
  if (child == 0) {
    act();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

// Longer than two signals of one request lie apart.
void let_time_pass() {
  const timespec time = {.tv_sec = 0, .tv_nsec = 150'000'000};
  ::nanosleep(&time, nullptr);
}

TEST(Interruption, RemembersTheFirstSignal) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const Interruption interruption;
    EXPECT_FALSE(interruption.is_asked_for());
    ::raise(signal);
    EXPECT_TRUE(interruption.is_asked_for());
    ::raise(SIGHUP);
    EXPECT_EQ(interruption.signal(), signal);
  }
}

TEST(Interruption, SaysWhatHappensNextAsSoonAsItIsAsked) {
  const Interruption interruption("the step is being finished", "\n");
  ::testing::internal::CaptureStderr();
  ::raise(SIGTERM);
  ::raise(SIGHUP);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "\nnote: SIGTERM: the step is being finished\n");
}

TEST(Interruption, WhatIsDoneIsNotInterruptedAnyMore) {
  const int status = status_of_process([] {
    {
      Interruption interruption;
      interruption.ignore_from_now();
      for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::raise(signal);
    }
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::raise(signal);
  });
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(Interruption, ASecondSignalEndsTheProcess) {
  const int status = status_of_process([] {
    const Interruption interruption;
    ::raise(SIGINT);
    let_time_pass();
    ::raise(SIGTERM);
  });
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGTERM);
}

TEST(Interruption, SignalsOfOneRequestAndHangupsAreNoSecondOne) {
  const int status = status_of_process([] {
    const Interruption interruption;
    ::raise(SIGHUP);
    let_time_pass();
    ::raise(SIGTERM);
    ::raise(SIGTERM);
    let_time_pass();
    ::raise(SIGHUP);
  });
  EXPECT_TRUE(WIFEXITED(status));
}

// Under nohup, and in the background of a script.
TEST(Interruption, AHangupOrAnInterruptThatIsIgnoredStaysSo) {
  for (const int number : {SIGINT, SIGHUP}) {
    const auto before = ::signal(number, SIG_IGN);
    {
      const Interruption interruption;
      EXPECT_THAT(interruption.ignored(), ::testing::ElementsAre(interruption_name(number)));
      ::raise(number);
      EXPECT_FALSE(interruption.is_asked_for());
    }
    ::signal(number, before);
  }
}

}  // namespace
}  // namespace fullshard::train
