// SPDX-License-Identifier: Apache-2.0
// The command lines that reach other hosts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fullshard/launch/hostfile.h"

namespace fullshard::launch {

// One word for a POSIX shell, whatever it holds.
std::string shell_quoted(std::string_view word);
std::string shell_line(const std::vector<std::string>& words);

// Runs `line` in the shell of a host. `ssh` is a command and its options, split at spaces; when it
// is OpenSSH's, it must not ask for passwords.
std::vector<std::string> remote_command(const std::string& ssh, const std::string& host,
                                        const std::string& line);

bool is_this_host(const std::string& name);
// Where other hosts reach it: without the user, and this host by its real name.
std::string address_of(const std::string& host);

}  // namespace fullshard::launch
