#include "fullshard/launch/job_secret.h"

#include <sys/random.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "fullshard/base/error.h"
#include "fullshard/base/private_file.h"

namespace fullshard {

std::string make_job_secret() {
  std::array<unsigned char, 16> bytes{};
  const bool is_random =
      ::getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size());
  check(is_random, "launch: no random numbers: {}", std::strerror(errno));
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

std::string given_job_secret() {
  const char* secret = std::getenv("FULLSHARD_JOB_SECRET");
  if (secret != nullptr && *secret != '\0') return secret;
  const char* file = std::getenv("FULLSHARD_JOB_SECRET_FILE");
  if (file != nullptr && *file != '\0') return read_private_line(file);
  return {};
}

}  // namespace fullshard
