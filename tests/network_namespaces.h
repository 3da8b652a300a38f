// SPDX-License-Identifier: Apache-2.0
// Two network namespaces that see each other through a pair of virtual interfaces: two hosts, as
// far as ranks can tell, and a link that can be cut.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <thread>

namespace fullshard::testing {

struct ShellEnded {
  int status = 0;
  std::string output;  // and errors
};

inline ShellEnded shell(const std::string& line) {
  std::FILE* pipe = ::popen(("(" + line + ") 2>&1").c_str(), "r");
  ShellEnded ended;
  char buffer[4096];
  while (const size_t got = std::fread(buffer, 1, sizeof buffer, pipe)) {
    ended.output.append(buffer, got);
  }
  ended.status = WEXITSTATUS(::pclose(pipe));
  return ended;
}

class TwoNamespaces {
 public:
  static constexpr const char* kFirstAddress = "10.213.77.1";

  TwoNamespaces() {
    const ShellEnded made = shell(fmt::format(
        "set -e; ip netns add {0}; ip netns add {1}; ip link add {2} netns {0} type veth peer name "
        "{2} netns {1}; for each in {0}:{3} {1}:10.213.77.2; do space=${{each%:*}}; ip -n "
        "$space addr add ${{each#*:}}/24 dev {2}; ip -n $space link set {2} up; ip -n $space link "
        "set lo up; done",
        first(), second(), kLink, kFirstAddress));
    if (made.status != 0) problem_ = "no network namespaces here: " + made.output;
  }
  ~TwoNamespaces() { shell("ip netns del " + first() + "; ip netns del " + second()); }
  TwoNamespaces(const TwoNamespaces&) = delete;
  TwoNamespaces& operator=(const TwoNamespaces&) = delete;

  // Why there are none; empty when they were made.
  const std::string& problem() const { return problem_; }
  std::string first() const { return fmt::format("fullshard-{}-a", ::getpid()); }
  std::string second() const { return fmt::format("fullshard-{}-b", ::getpid()); }

  // Whatever is on its way is lost, and no side is told.
  void cut() const { shell(cut_line()); }
  // The same, and the contrary, as a line of the shell.
  std::string cut_line() const { return link_line("down"); }
  std::string mend_line() const { return link_line("up"); }

 private:
  static constexpr const char* kLink = "fullshard0";

  std::string link_line(const std::string& state) const {
    return fmt::format("ip -n {0} link set {2} {3}; ip -n {1} link set {2} {3}", first(), second(),
                       kLink, state);
  }

  std::string problem_;
};

// Sockets and threads that `act` makes stay on that host. False: it could not go there.
template <class Act>
bool on_host(const std::string& space, const Act& act) {
  bool is_there = false;
  std::thread([&] {
    const int host = ::open(("/var/run/netns/" + space).c_str(), O_RDONLY | O_CLOEXEC);
    is_there = ::setns(host, CLONE_NEWNET) == 0;
    ::close(host);
    if (is_there) act();
  }).join();
  return is_there;
}

}  // namespace fullshard::testing
