// SPDX-License-Identifier: Apache-2.0
#include "fullshard/report/records/run_lock.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <functional>

#include "fullshard/base/error.h"
#include "tests/errors.h"
#include "tests/files.h"

namespace fullshard::report {
namespace {

using fullshard::testing::message_of;
using fullshard::testing::TemporaryFolder;

std::string host() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return name;
}

// A process that does something, says so, and then waits to be killed.
class Busy {
 public:
  explicit Busy(const std::function<void()>& act) {
    int ready[2];
    EXPECT_EQ(::pipe(ready), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      act();
      [[maybe_unused]] const ssize_t told = ::write(ready[1], "x", 1);
      for (;;) ::pause();
    }
    char letter = 0;
    EXPECT_EQ(::read(ready[0], &letter, 1), 1);
    ::close(ready[0]);
    ::close(ready[1]);
  }
  ~Busy() { kill(); }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
};

TEST(RunLock, RefusesASecondOwnerAndNamesTheFirst) {
  const TemporaryFolder folder;
  const RunLock first(folder.path());
  EXPECT_EQ(first.previous(), std::nullopt);
  EXPECT_EQ(first.warning(), "");
  try {
    const RunLock second(folder.path());
    FAIL() << "there are two owners";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_EQ(error.what(),
              fmt::format("{}: is in use by another run (process {} on host {}); wait for "
                          "it or end it, or choose another --output",
                          folder.path(), ::getpid(), host()));
  }
  EXPECT_EQ(find_owner(folder.path()).state, OwnerState::live);
}

TEST(RunLock, GoesWithItsOwnerHoweverThatEnds) {
  const TemporaryFolder folder;
  EXPECT_EQ(find_owner(folder.path()).state, OwnerState::none);
  Busy owner([&] { new RunLock(folder.path()); });
  EXPECT_EQ(find_owner(folder.path()).state, OwnerState::live);
  EXPECT_EQ(find_owner(folder.path()).owner.process, owner.pid());
  EXPECT_EQ(find_owner(folder.path()).owner.host, host());
  const pid_t pid = owner.pid();
  owner.kill();
  EXPECT_EQ(find_owner(folder.path()).state, OwnerState::gone);
  const RunLock next(folder.path());
  ASSERT_TRUE(next.previous().has_value());
  EXPECT_EQ(next.previous()->death(),
            fmt::format("process {} on host {} ended unexpectedly: killed, out of memory, or its "
                        "machine stopped",
                        pid, host()));
}

TEST(RunLock, LastsAsLongAsAnybodyWhoInheritedIt) {
  const TemporaryFolder folder;
  auto lock = std::make_unique<RunLock>(folder.path());
  Busy heir([] {});  // has every descriptor of this process
  lock.reset();
  EXPECT_EQ(find_owner(folder.path()).state, OwnerState::live);
  heir.kill();
  EXPECT_EQ(find_owner(folder.path()).state, OwnerState::gone);
}

TEST(RunLock, IsTakenOverFromTheLauncher) {
  const TemporaryFolder folder, other;
  const RunLock lock(folder.path());
  const int handed = ::dup(lock.descriptor());
  base::LauncherEnvironment launcher;
  launcher.run_lock.text = std::to_string(handed);
  {
    const RunLock same = RunLock::inherited_or_new(folder.path(), launcher);
    EXPECT_EQ(same.descriptor(), handed);
    EXPECT_EQ(::fcntl(handed, F_GETFD), FD_CLOEXEC);
    // The number alone proves nothing: it must be this folder's lock.
    EXPECT_NE(RunLock::inherited_or_new(other.path(), launcher).descriptor(), handed);
  }
  EXPECT_EQ(find_owner(folder.path()).state, OwnerState::live);
}

TEST(RunLock, OfAnotherHostIsNotCalledGone) {
  const TemporaryFolder folder;
  std::ofstream(folder.file("run.lock")) << R"({"host":"elsewhere","process":17,"born":3})";
  EXPECT_EQ(find_owner(folder.path()).state, OwnerState::unknown);
  EXPECT_EQ(find_owner(folder.path()).owner.text(), "process 17 on host elsewhere");
}

TEST(RunLock, WritesNothingThroughALink) {
  const TemporaryFolder folder, other;
  const std::string target = other.file("mine"), link = folder.file("run.lock");
  std::ofstream(target) << "mine";
  ASSERT_EQ(::symlink(target.c_str(), link.c_str()), 0);
  EXPECT_EQ(message_of([&] { RunLock lock(folder.path()); }),
            link +
                ": is a symbolic link, and a lock must be a file of this folder; remove the link, "
                "or name another folder with --output");
  EXPECT_EQ(fullshard::testing::read_file(target), "mine");
  EXPECT_EQ(find_owner(folder.path()).state, OwnerState::none);
}

TEST(RunLock, SaysWhereItCannotBe) {
  EXPECT_EQ(message_of([] { RunLock lock("/proc/none/run"); }),
            "/proc/none: cannot be made: No such file or directory");
}

}  // namespace
}  // namespace fullshard::report
