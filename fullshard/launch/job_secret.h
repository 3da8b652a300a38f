// The token that ranks show before they may meet.
#pragma once

#include <string>

namespace fullshard {

// A hundred and twenty-eight random bits in hexadecimal.
std::string make_job_secret();
// That somebody else has made for several launchers: FULLSHARD_JOB_SECRET, or the first line of the
// file that FULLSHARD_JOB_SECRET_FILE names, which nobody but its owner may read. Empty: none.
std::string given_job_secret();

}  // namespace fullshard
