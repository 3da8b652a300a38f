#include "fullshard/base/error.h"
#include "fullshard/text/pattern.h"

namespace fullshard {

std::unique_ptr<Pattern> pcre_pattern(const std::string& expression) {
  fail_as(
      ErrorKind::input,
      "regular expression \"{}\": this build has no PCRE2; install libpcre2-dev and build again",
      expression);
}

}  // namespace fullshard
