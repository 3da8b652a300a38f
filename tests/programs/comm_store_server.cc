// SPDX-License-Identifier: Apache-2.0
// The ranks' store in a process that may open few files: comm_store_server FILES TOKEN. Prints its
// port, and serves until somebody sets the key "done".
#include <fmt/format.h>
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>

#include "fullshard/comm/store/store_client.h"
#include "fullshard/comm/store/store_server.h"

int main(int, char** arguments) {
  const rlim_t files = std::strtoul(arguments[1], nullptr, 10);
  const rlimit limit = {files, files};
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) return 1;
  const auto server = fullshard::comm::StoreServer::open(0, /*loopback=*/true, arguments[2]);
  fullshard::comm::StoreClient own(
      {"127.0.0.1", server->port(), arguments[2], std::chrono::seconds(60)});
  fmt::print("{}\n", server->port());
  std::fflush(stdout);
  return own.wait({"done"}, std::chrono::minutes(2)) ? 0 : 1;
}
