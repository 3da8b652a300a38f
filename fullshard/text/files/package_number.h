// SPDX-License-Identifier: Apache-2.0
// Numbers of tokenizer.json as the tokenizers package reads them.
#pragma once

namespace fullshard::text {

// Its JSON library reads the digits as a whole number and divides by a power of ten, which rounds
// twice: every fourth score is wrong in its last bit. That decides between cuts whose sums would be
// equal ("0" + "0000" or "0000" + "0"), so scores must be wrong here too. `value` is the number
// read correctly; its shortest digits are assumed to be those of the file.
double as_package_reads(double value);

}  // namespace fullshard::text
