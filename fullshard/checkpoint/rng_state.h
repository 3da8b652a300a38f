// The state of the default CPU generator as text.
#pragma once

#include <string>

namespace fullshard {

std::string rng_state_text();  // hexadecimal digits
// An error of the kind input when the text is no such state; then nothing is changed.
void restore_rng_state(const std::string& text);

}  // namespace fullshard
