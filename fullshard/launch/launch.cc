#include "fullshard/launch/launch.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sched.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>

#include "fullshard/base/error.h"
#include "fullshard/launch/rank_process.h"

namespace fullshard {
namespace {

using Clock = std::chrono::steady_clock;
using Ranks = std::vector<std::unique_ptr<RankProcess>>;

int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  const bool found = socket >= 0 && ::bind(socket, generic, length) == 0 &&
                     ::getsockname(socket, generic, &length) == 0;
  const int reason = errno;
  if (socket >= 0) ::close(socket);
  check(found, "launch: no free port on this host: {}", std::strerror(reason));
  return ntohs(address.sin_port);
}

// Keys of the ranks' store begin with it: who does not know it cannot join.
std::string make_secret() {
  std::array<unsigned char, 16> bytes{};
  check(::getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()),
        "launch: no random numbers: {}", std::strerror(errno));
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

int num_cores() {
  cpu_set_t cores;
  return ::sched_getaffinity(0, sizeof cores, &cores) == 0 ? std::max(1, CPU_COUNT(&cores)) : 1;
}

// What says who a rank is must not be inherited from a launcher around this one.
bool names_a_rank(std::string_view variable) {
  static constexpr std::string_view kNames[] = {
      "RANK",        "WORLD_SIZE",  "LOCAL_RANK", "LOCAL_WORLD_SIZE",
      "MASTER_ADDR", "MASTER_PORT", "JOB_SECRET"};
  std::string_view name = variable.substr(0, variable.find('='));
  if (name.starts_with("TORCHELASTIC_")) return true;
  if (name.starts_with("FULLSHARD_")) name.remove_prefix(std::strlen("FULLSHARD_"));
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

// Common to all ranks.
std::vector<std::string> job_variables(int ranks) {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (!names_a_rank(*variable)) variables.emplace_back(*variable);
  }
  if (std::getenv("OMP_NUM_THREADS") == nullptr) {
    variables.push_back(fmt::format("OMP_NUM_THREADS={}", std::max(1, num_cores() / ranks)));
  }
  variables.push_back(fmt::format("WORLD_SIZE={}", ranks));
  variables.push_back(fmt::format("LOCAL_WORLD_SIZE={}", ranks));
  variables.push_back("MASTER_ADDR=127.0.0.1");
  variables.push_back(fmt::format("MASTER_PORT={}", free_port()));
  variables.push_back("FULLSHARD_JOB_SECRET=" + make_secret());
  return variables;
}

Ranks start_ranks(const LaunchOptions& options) {
  const std::vector<std::string> common = job_variables(options.ranks);
  Ranks ranks;
  for (int rank = 0; rank < options.ranks; ++rank) {
    std::vector<std::string> variables = common;
    variables.push_back(fmt::format("RANK={}", rank));
    variables.push_back(fmt::format("LOCAL_RANK={}", rank));
    ranks.push_back(std::make_unique<RankProcess>(rank, options.command, variables));
  }
  return ranks;
}

// Signals arrive as reads while this lives, so that one poll waits for everything.
class Signals {
 public:
  Signals() {
    ::sigemptyset(&watched_);
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) ::sigaddset(&watched_, number);
    ::pthread_sigmask(SIG_BLOCK, &watched_, &before_);
    descriptor_ = ::signalfd(-1, &watched_, SFD_NONBLOCK | SFD_CLOEXEC);
    check(descriptor_ >= 0, "launch: cannot watch signals: {}", std::strerror(errno));
  }
  ~Signals() {
    ::close(descriptor_);
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  int descriptor() const { return descriptor_; }
  std::optional<signalfd_siginfo> next() const {
    signalfd_siginfo info;
    if (::read(descriptor_, &info, sizeof info) != sizeof info) return std::nullopt;
    return info;
  }

 private:
  sigset_t watched_;
  sigset_t before_;
  int descriptor_ = -1;
};

class Supervisor {
 public:
  explicit Supervisor(const LaunchOptions& options)
      : notice_(options.notice), grace_(options.grace), ranks_(start_ranks(options)) {}

  LaunchResult run() {
    while (is_any_running()) {
      wait_for_something();
      while (const auto info = signals_.next()) handle(*info);
      note_ended();
      if (deadline_ && Clock::now() >= *deadline_) press();
    }
    for (const auto& rank : ranks_) rank->pass_rest();
    if (interrupted_) result_ = {.status = 130, .failed_rank = {}, .message = "interrupted"};
    return result_;
  }

 private:
  bool is_any_running() const {
    return std::any_of(ranks_.begin(), ranks_.end(),
                       [](const auto& rank) { return rank->is_running(); });
  }

  void wait_for_something() {
    std::vector<pollfd> watched = {{signals_.descriptor(), POLLIN, 0}};
    std::vector<std::pair<RankProcess*, size_t>> sources;
    for (const auto& rank : ranks_) {
      for (const size_t which : {0, 1}) {
        if (rank->outputs()[which] < 0) continue;
        watched.push_back({rank->outputs()[which], POLLIN, 0});
        sources.emplace_back(rank.get(), which);
      }
    }
    // A second at most: a signal may be lost when another part of the program takes it.
    auto patience = std::chrono::milliseconds(1000);
    if (deadline_) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(*deadline_ - Clock::now());
      patience = std::clamp(left, std::chrono::milliseconds(1), patience);
    }
    ::poll(watched.data(), watched.size(), static_cast<int>(patience.count()));
    for (size_t place = 0; place < sources.size(); ++place) {
      if (watched[place + 1].revents != 0) sources[place].first->pass_output(sources[place].second);
    }
  }

  void handle(const signalfd_siginfo& info) {
    const auto number = static_cast<int>(info.ssi_signo);
    if (number == SIGCHLD) return;
    interrupted_ = true;
    // Ctrl-C in a terminal has reached the ranks already; a second one must not arrive.
    if (info.ssi_code != SI_KERNEL) signal_all(number);
    was_asked_ = true;
    deadline_ = Clock::now() + grace_;
  }

  void note_ended() {
    const RankProcess* failed = nullptr;
    for (const auto& rank : ranks_) {
      if (!rank->has_just_ended() || !rank->has_failed()) continue;
      // Several may have ended since the last look: one that was killed is likelier the cause.
      if (!failed || (rank->was_killed() && !failed->was_killed())) failed = rank.get();
    }
    if (!failed || result_.failed_rank || interrupted_) return;
    result_ = {failed->exit_status(), failed->rank(),
               fmt::format("rank {}: {}", failed->rank(), failed->how_it_ended())};
    fmt::print(stderr, "error: {}\n", result_.message);
    deadline_ = Clock::now() + notice_;
  }

  // The time is over: first ask the ranks that are left to end, then kill them.
  void press() {
    signal_all(was_asked_ ? SIGKILL : SIGTERM);
    was_asked_ = true;
    deadline_ = Clock::now() + grace_;
  }

  void signal_all(int number) const {
    for (const auto& rank : ranks_) rank->signal(number);
  }

  std::chrono::milliseconds notice_;
  std::chrono::milliseconds grace_;
  Signals signals_;  // before the ranks: their ends are signals too
  Ranks ranks_;
  LaunchResult result_;
  bool interrupted_ = false;
  bool was_asked_ = false;  // the ranks have been told to end
  std::optional<Clock::time_point> deadline_;
};

}  // namespace

LaunchResult launch(const LaunchOptions& options) {
  if (options.ranks < 1) {
    fail_as(ErrorKind::usage, "launch: {} ranks asked for, expected at least 1", options.ranks);
  }
  if (options.command.empty()) {
    fail_as(ErrorKind::usage, "launch: no program given; write it after '--'");
  }
  return Supervisor(options).run();
}

}  // namespace fullshard
