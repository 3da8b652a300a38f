#include "fullshard/launch/rank_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "fullshard/base/error.h"

namespace fullshard {
namespace {

struct Pipe {
  int read = -1;
  int write = -1;
};

Pipe make_pipe() {
  int ends[2];
  check(::pipe2(ends, O_CLOEXEC) == 0, "launch: cannot make a pipe: {}", std::strerror(errno));
  return {ends[0], ends[1]};
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

// Runs in the child, between fork and exec: only calls that are safe after a fork.
[[noreturn]] void become(char** command, char** environment, pid_t launcher, const Pipe* outputs,
                         int failure) {
  // SIGKILL because a rank that handles SIGTERM might outlive a launcher that is gone.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != launcher) ::_exit(1);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (outputs[0].write >= 0) {
    ::dup2(outputs[0].write, STDOUT_FILENO);
    ::dup2(outputs[1].write, STDERR_FILENO);
    const int nothing = ::open("/dev/null", O_RDONLY);
    if (nothing >= 0) ::dup2(nothing, STDIN_FILENO);
  }
  ::execvpe(command[0], command, environment);
  const int reason = errno;
  [[maybe_unused]] const ssize_t written = ::write(failure, &reason, sizeof reason);
  ::_exit(127);
}

}  // namespace

RankProcess::RankProcess(int rank, const std::vector<std::string>& command,
                         const std::vector<std::string>& environment)
    : rank_(rank),
      lines_{LinePrefix(fmt::format("[{}] ", rank)), LinePrefix(fmt::format("[{}] ", rank))} {
  const std::vector<char*> arguments = pointers(command);
  const std::vector<char*> variables = pointers(environment);
  Pipe outputs[2];
  if (rank > 0) {
    for (Pipe& output : outputs) output = make_pipe();
  }
  // Closed by a successful exec; otherwise it brings the reason.
  const Pipe failure = make_pipe();
  const pid_t launcher = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) {
    become(const_cast<char**>(arguments.data()), const_cast<char**>(variables.data()), launcher,
           outputs, failure.write);
  }
  const int fork_error = errno;
  ::close(failure.write);
  for (size_t which : {0, 1}) {
    if (outputs[which].write >= 0) ::close(outputs[which].write);
    outputs_[which] = outputs[which].read;
    if (outputs_[which] >= 0) ::fcntl(outputs_[which], F_SETFL, O_NONBLOCK);
  }
  int reason = pid_ < 0 ? fork_error : 0;
  if (pid_ > 0 && ::read(failure.read, &reason, sizeof reason) > 0) ::waitpid(pid_, nullptr, 0);
  ::close(failure.read);
  if (reason != 0) {
    fail_as(ErrorKind::usage, "launch: cannot start '{}': {}", command.front(),
            std::strerror(reason));
  }
}

RankProcess::~RankProcess() {
  if (pid_ > 0 && !ended_) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  for (const int output : outputs_) {
    if (output >= 0) ::close(output);
  }
}

void RankProcess::signal(int number) const {
  if (!ended_) ::kill(pid_, number);
}

bool RankProcess::has_just_ended() {
  if (ended_ || ::waitpid(pid_, &wait_status_, WNOHANG) != pid_) return false;
  ended_ = true;
  return true;
}

bool RankProcess::was_killed() const { return ended_ && WIFSIGNALED(wait_status_); }

int RankProcess::exit_status() const {
  return was_killed() ? 128 + WTERMSIG(wait_status_) : WEXITSTATUS(wait_status_);
}

std::string RankProcess::how_it_ended() const {
  if (!was_killed()) return fmt::format("exited with status {}", exit_status());
  const int number = WTERMSIG(wait_status_);
  return fmt::format("killed by signal {} ({})", number, ::strsignal(number));
}

bool RankProcess::pass_output(size_t which) {
  if (outputs_[which] < 0) return false;
  char buffer[8192];
  const ssize_t got = ::read(outputs_[which], buffer, sizeof buffer);
  if (got > 0) {
    write_out(which, lines_[which].take({buffer, static_cast<size_t>(got)}));
  } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
    write_out(which, lines_[which].rest());
    ::close(outputs_[which]);
    outputs_[which] = -1;
  }
  return got > 0;
}

void RankProcess::pass_rest() {
  for (const size_t which : {0, 1}) {
    // A helper that the rank has left behind may hold the other end: take only what is there.
    while (pass_output(which)) {
    }
    write_out(which, lines_[which].rest());
  }
}

void RankProcess::write_out(size_t which, const std::string& text) const {
  const int target = which == 0 ? STDOUT_FILENO : STDERR_FILENO;
  for (size_t done = 0; done < text.size();) {
    const ssize_t wrote = ::write(target, text.data() + done, text.size() - done);
    if (wrote < 0 && errno != EINTR) return;  // nobody reads any more
    if (wrote > 0) done += static_cast<size_t>(wrote);
  }
}

}  // namespace fullshard
