// SPDX-License-Identifier: Apache-2.0
#include "fullshard/base/error.h"
#include "fullshard/text/pipeline/pattern.h"

namespace fullshard::text {

std::unique_ptr<Pattern> pcre_pattern(const std::string& expression) {
  fail_as(
      ErrorKind::input,
      "regular expression \"{}\": this build has no PCRE2; install libpcre2-dev and build again",
      expression);
}

}  // namespace fullshard::text
