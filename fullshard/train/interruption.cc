#include "fullshard/train/interruption.h"

#include <array>

namespace fullshard {
namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM};
volatile std::sig_atomic_t asked = 0;  // signals belong to the process

void remember(int) { asked = 1; }

}  // namespace

Interruption::Interruption() {
  asked = 0;
  struct sigaction action = {};
  action.sa_handler = remember;
  action.sa_flags = static_cast<int>(SA_RESTART | SA_RESETHAND);
  for (size_t place = 0; place < kSignals.size(); ++place) {
    ::sigaction(kSignals[place], &action, &before_[place]);
  }
}

Interruption::~Interruption() {
  for (size_t place = 0; place < kSignals.size(); ++place) {
    ::sigaction(kSignals[place], &before_[place], nullptr);
  }
}

bool Interruption::is_asked_for() const { return asked != 0; }

}  // namespace fullshard
