// SPDX-License-Identifier: Apache-2.0
// Unicode's normal forms.
#pragma once

#include <string>
#include <string_view>

namespace fullshard::text {

enum class NormalForm { nfc, nfd, nfkc, nfkd };

// Valid UTF-8 in and out. Text that is already in the form, as most text is, costs one look per
// character.
std::string to_normal_form(std::string_view text, NormalForm form);

}  // namespace fullshard::text
