// SPDX-License-Identifier: Apache-2.0
// The token that ranks show before they may meet.
#pragma once

#include <string>

namespace fullshard::launch {

// 128 random bits in hexadecimal.
std::string make_job_secret();

}  // namespace fullshard::launch
