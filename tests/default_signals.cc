// SPDX-License-Identifier: Apache-2.0
// A job in the background of a script inherits an ignored SIGINT, which tests of signals send.
#include <csignal>

namespace {

[[maybe_unused]] const bool is_default = std::signal(SIGINT, SIG_DFL) != SIG_ERR;

}  // namespace
