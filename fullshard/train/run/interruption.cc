// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/run/interruption.h"

#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <ctime>

namespace fullshard::train {
namespace {

constexpr int64_t kOneRequest = 100'000'000;  // nanoseconds in which two signals are one request

// Signals belong to the process. The text outlives every handler that reads it: it is changed only
// while none is installed.
volatile std::sig_atomic_t first_signal = 0;
volatile std::sig_atomic_t has_been_asked = 0;  // by SIGINT or SIGTERM
int64_t asked_at = 0;
std::string* lines_of_signals = nullptr;

int place_of(int number) { return number == SIGINT ? 0 : number == SIGTERM ? 1 : 2; }

int64_t nanoseconds_now() {
  timespec now = {};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// Only calls that are safe in a handler.
void remember(int number) {
  const int problem = errno;
  if (number != SIGHUP && has_been_asked != 0 && nanoseconds_now() - asked_at > kOneRequest) {
    ::signal(number, SIG_DFL);
    ::raise(number);  // arrives when the handler returns
  }
  if (number != SIGHUP && has_been_asked == 0) {
    has_been_asked = 1;
    asked_at = nanoseconds_now();
  }
  if (first_signal == 0) {
    first_signal = number;
    const std::string& line = lines_of_signals[place_of(number)];
    [[maybe_unused]] const ssize_t wrote = ::write(STDERR_FILENO, line.data(), line.size());
  }
  errno = problem;
}

bool is_left_alone(int number, const struct sigaction& before) {
  return number != SIGTERM && before.sa_handler == SIG_IGN;
}

}  // namespace

Interruption::Interruption(const std::string& notice, const std::string& lead) {
  static std::string lines[3];
  first_signal = 0;
  has_been_asked = 0;
  lines_of_signals = lines;
  struct sigaction action = {};
  action.sa_handler = remember;
  action.sa_flags = SA_RESTART;
  for (const int number : kSignals) ::sigaddset(&action.sa_mask, number);
  for (const int number : kSignals) {
    const int place = place_of(number);
    lines[place] =
        notice.empty() ? "" : lead + "note: " + interruption_name(number) + ": " + notice + "\n";
    ::sigaction(number, nullptr, &before_[place]);
    if (!is_left_alone(number, before_[place])) ::sigaction(number, &action, nullptr);
  }
}

Interruption::~Interruption() {
  for (const int number : kSignals) ::sigaction(number, &before_[place_of(number)], nullptr);
}

void Interruption::ignore_from_now() {
  for (const int number : kSignals) {
    struct sigaction& after = before_[place_of(number)];
    after = {};
    after.sa_handler = SIG_IGN;
    ::sigaction(number, &after, nullptr);
  }
}

std::vector<std::string> Interruption::ignored() const {
  std::vector<std::string> names;
  for (const int number : kSignals) {
    if (is_left_alone(number, before_[place_of(number)])) {
      names.push_back(interruption_name(number));
    }
  }
  return names;
}

bool Interruption::is_asked_for() const { return first_signal != 0; }
int Interruption::signal() const { return first_signal; }

std::string interruption_name(int signal) {
  return signal == SIGINT ? "SIGINT" : signal == SIGTERM ? "SIGTERM" : "SIGHUP";
}

}  // namespace fullshard::train
