// SPDX-License-Identifier: Apache-2.0
#include "fullshard/launch/child_process.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "fullshard/base/error.h"
#include "fullshard/launch/keeper.h"
#include "fullshard/launch/start_problem.h"

namespace fullshard::launch {
namespace {

// Both ends of a pipe, or of a pair of sockets: writing to a closed socket need not kill the
// writer.
struct Ends {
  int own = -1;
  int childs = -1;
};

Ends make_pipe() {
  int ends[2];
  const bool is_made = ::pipe2(ends, O_CLOEXEC) == 0;
  check(is_made, "launch: cannot make a pipe: {}", std::strerror(errno));
  return {ends[0], ends[1]};
}

Ends make_control() {
  int ends[2];
  const bool is_made = ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0;
  check(is_made, "launch: cannot make a pair of sockets: {}", std::strerror(errno));
  return {ends[0], ends[1]};
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

cpu_set_t to_set(const std::vector<int>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(static_cast<size_t>(core), &set);
  return set;
}

// All that the child needs between fork and exec, made before the fork.
struct Birth {
  std::vector<char*> command;
  std::vector<char*> environment;
  cpu_set_t cores;
  bool is_bound;
  int input;  // -1: keep
  int outputs[2];
  int failure;
  pid_t launcher;
  const std::vector<int>& kept_open;
};

// Runs in the child, between fork and exec: only calls that are safe after a fork.
[[noreturn]] void become(const Birth& birth, const Keeper& keeper) {
  ::setpgid(0, 0);
  // The keeper ends the group when the launcher is gone; this ends the leader even if the keeper is
  // gone too. SIGKILL because a rank that handles SIGTERM might outlive a launcher that is gone.
  keeper.note_started(::getpid());
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != birth.launcher) ::_exit(1);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);  // ignored by the launcher only
  for (const int descriptor : birth.kept_open) ::fcntl(descriptor, F_SETFD, 0);
  if (birth.is_bound) ::sched_setaffinity(0, sizeof birth.cores, &birth.cores);
  if (birth.input >= 0) ::dup2(birth.input, STDIN_FILENO);
  if (birth.outputs[0] >= 0) ::dup2(birth.outputs[0], STDOUT_FILENO);
  if (birth.outputs[1] >= 0) ::dup2(birth.outputs[1], STDERR_FILENO);
  ::execvpe(birth.command[0], birth.command.data(), birth.environment.data());
  const int reason = errno;
  [[maybe_unused]] const ssize_t written = ::write(birth.failure, &reason, sizeof reason);
  ::_exit(127);
}

}  // namespace

ChildProcess::ChildProcess(const ChildOptions& options, const Keeper& keeper)
    : name_(options.name),
      number_(options.number),
      keeper_(keeper),
      is_direct_(options.direct),
      output_(options.output) {
  Ends outputs[2], control;
  if (!options.direct) {
    for (Ends& output : outputs) output = make_pipe();
  }
  int input = -1;
  if (options.is_remote) {
    control = make_control();
    input = control.childs;
  } else if (!options.has_input) {
    input = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  }
  const Ends failure = make_pipe();  // closed by a successful exec; otherwise carries the errno
  const Birth birth{pointers(options.command),
                    pointers(options.environment),
                    to_set(options.cores),
                    !options.cores.empty(),
                    input,
                    {outputs[0].childs, outputs[1].childs},
                    failure.childs,
                    ::getpid(),
                    options.kept_open};
  pid_ = ::fork();
  if (pid_ == 0) become(birth, keeper);
  int reason = pid_ < 0 ? errno : 0;
  if (pid_ > 0) ::setpgid(pid_, pid_);  // whichever process comes first
  ::close(failure.childs);
  if (input >= 0) ::close(input);
  for (const size_t stream : {0, 1}) {
    if (outputs[stream].childs >= 0) ::close(outputs[stream].childs);
    outputs_[stream] = outputs[stream].own;
    if (outputs_[stream] >= 0) ::fcntl(outputs_[stream], F_SETFL, O_NONBLOCK);
  }
  control_ = control.own;
  if (pid_ > 0 && ::read(failure.own, &reason, sizeof reason) > 0) {
    ::waitpid(pid_, nullptr, 0);
    keeper.note_ended(pid_);
  }
  ::close(failure.own);
  if (reason != 0) {
    close_outputs();
    fail_as(ErrorKind::usage, "launch: {}", start_problem(options.command.front(), reason));
  }
}

ChildProcess::~ChildProcess() {
  if (!ended_) {
    ::kill(-pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    keeper_.note_ended(pid_);
  }
  close_outputs();
}

void ChildProcess::close_outputs() {
  for (int* descriptor : {&outputs_[0], &outputs_[1], &control_}) {
    if (*descriptor >= 0) ::close(std::exchange(*descriptor, -1));
  }
}

void ChildProcess::signal(int number) {
  if (ended_) return;
  if (control_ < 0) {
    ::kill(-pid_, number);
    return;
  }
  tell(fmt::format("signal {}", number));
  // The connection lives until the line has arrived; if it hangs, the next SIGKILL ends it.
  if (number == SIGKILL) ::close(std::exchange(control_, -1));
}

void ChildProcess::tell(const std::string& line) const {
  if (control_ < 0) return;
  const std::string text = line + "\n";
  ::send(control_, text.data(), text.size(), MSG_NOSIGNAL);
}

bool ChildProcess::has_just_ended() {
  siginfo_t info = {};
  if (ended_ || ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid != pid_) {
    return false;
  }
  // Until the leader is reaped, no other group can have its number.
  ::kill(-pid_, SIGKILL);
  ::waitpid(pid_, &wait_status_, 0);
  keeper_.note_ended(pid_);
  ended_ = true;
  return true;
}

bool ChildProcess::was_killed() const { return ended_ && WIFSIGNALED(wait_status_); }

bool ChildProcess::was_killed_by(int number) const {
  return was_killed() && WTERMSIG(wait_status_) == number;
}

int ChildProcess::exit_status() const {
  return was_killed() ? 128 + WTERMSIG(wait_status_) : WEXITSTATUS(wait_status_);
}

std::string ChildProcess::how_it_ended() const {
  if (!was_killed()) return fmt::format("exited with status {}", exit_status());
  const int number = WTERMSIG(wait_status_);
  return fmt::format("killed by signal {} ({})", number, ::strsignal(number));
}

bool ChildProcess::pass_output(size_t stream) {
  if (outputs_[stream] < 0) return false;
  char buffer[8192];
  const ssize_t got = ::read(outputs_[stream], buffer, sizeof buffer);
  if (got > 0) {
    output_.take(stream, {buffer, static_cast<size_t>(got)});
  } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
    ::close(std::exchange(outputs_[stream], -1));
  }
  return got > 0;
}

void ChildProcess::pass_rest() {
  for (const size_t stream : {0, 1}) {
    // A process that left the group may still hold the other end: take only what is there.
    while (pass_output(stream)) {
    }
  }
  output_.finish();
}

}  // namespace fullshard::launch
