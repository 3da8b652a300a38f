// SPDX-License-Identifier: Apache-2.0
#include "fullshard/launch/remote_command.h"

#include <sstream>

#include "fullshard/base/error.h"
#include "fullshard/base/host_name.h"

namespace fullshard::launch {
namespace {

bool is_local_name(const std::string& name) { return name == "localhost" || name == "127.0.0.1"; }

}  // namespace

std::string shell_quoted(std::string_view word) {
  std::string text = "'";
  for (const char letter : word) {
    if (letter == '\'') {
      text += "'\\''";
    } else {
      text += letter;
    }
  }
  return text + "'";
}

std::string shell_line(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) {
    if (!line.empty()) line += ' ';
    line += shell_quoted(word);
  }
  return line;
}

std::vector<std::string> remote_command(const std::string& ssh, const std::string& host,
                                        const std::string& line) {
  std::istringstream stream(ssh);
  std::vector<std::string> command;
  for (std::string word; stream >> word;) command.push_back(word);
  if (command.empty()) fail_as(ErrorKind::usage, "launch: --ssh is empty, expected a command");
  const std::string& program = command.front();
  if (program.substr(program.rfind('/') + 1) == "ssh") {
    for (const char* option : {"BatchMode=yes", "ConnectTimeout=15", "ServerAliveInterval=15"}) {
      command.insert(command.end(), {"-o", option});
    }
    command.push_back("-T");
  }
  command.insert(command.end(), {host, line});
  return command;
}

bool is_this_host(const std::string& name) {
  return is_local_name(name) || name == base::host_name();
}

std::string address_of(const std::string& host) {
  const std::string name = host.substr(host.rfind('@') + 1);
  return is_local_name(name) ? base::host_name() : name;
}

}  // namespace fullshard::launch
