// SPDX-License-Identifier: Apache-2.0
#include "fullshard/launch/job_secret.h"

#include <sys/random.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "fullshard/base/error.h"

namespace fullshard::launch {

std::string make_job_secret() {
  std::array<unsigned char, 16> bytes{};
  const bool is_random =
      ::getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size());
  check(is_random, "launch: cannot get random numbers: {}", std::strerror(errno));
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace fullshard::launch
