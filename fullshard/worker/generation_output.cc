// SPDX-License-Identifier: Apache-2.0
#include "fullshard/worker/generation_output.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "fullshard/base/error.h"

namespace fullshard::worker {

std::string line_of(const GeneratedSequence& sequence, const LineFacts& facts) {
  nlohmann::ordered_json line;
  line["index"] = sequence.prompt;
  if (facts.is_one_of_several) line["sequence"] = sequence.number;
  line["prompt"] = facts.prompt;
  line["text"] = facts.has_text ? nlohmann::ordered_json(sequence.text) : nullptr;
  line["tokens"] = sequence.tokens;
  line["finish"] = finish_name(sequence.finish);
  if (!sequence.logprobs.empty()) line["logprobs"] = sequence.logprobs;
  if (facts.is_scored) line["score"] = sequence.score;
  line["rank"] = facts.rank;
  line["seconds"] = facts.seconds;
  return line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

GenerationOutput::GenerationOutput(const std::string& path, bool overwrites)
    : name_(path.empty() ? "standard output" : path),
      descriptor_(path.empty() ? STDOUT_FILENO
                               : ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666)) {
  if (descriptor_ < 0) {
    fail_as(ErrorKind::usage, "--output {}: cannot be written: {}", path, std::strerror(errno));
  }
  if (path.empty()) return;
  struct stat facts = {};
  const bool holds_something =
      ::fstat(descriptor_, &facts) == 0 && S_ISREG(facts.st_mode) && facts.st_size > 0;
  if (!holds_something) return;
  const bool is_cleared = overwrites && ::ftruncate(descriptor_, 0) == 0;
  if (is_cleared) return;
  ::close(descriptor_);
  fail_as(ErrorKind::usage,
          "--output {}: already holds {} bytes; choose another file, or add --overwrite", path,
          facts.st_size);
}

GenerationOutput::~GenerationOutput() {
  if (descriptor_ != STDOUT_FILENO) ::close(descriptor_);
}

void GenerationOutput::write(const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t size = ::write(descriptor_, text.data() + done, text.size() - done);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) {
      const int problem = errno;
      const size_t whole = std::string_view(text).substr(0, done).rfind('\n') + 1;  // npos + 1 is 0
      take_back(done - whole);
      fail("{}: cannot be written: {}", name_, std::strerror(problem));
    }
    done += static_cast<size_t>(size);
  }
}

void GenerationOutput::take_back(size_t bytes) const {
  struct stat facts = {};
  const off_t end = ::lseek(descriptor_, 0, SEEK_CUR);
  const bool is_file = end >= 0 && ::fstat(descriptor_, &facts) == 0 && S_ISREG(facts.st_mode);
  if (!is_file || bytes == 0) return;
  // If even this fails, the file keeps the part of a line: there is nothing left to try.
  if (::ftruncate(descriptor_, end - static_cast<off_t>(bytes)) != 0) return;
  ::lseek(descriptor_, end - static_cast<off_t>(bytes), SEEK_SET);
}

}  // namespace fullshard::worker
