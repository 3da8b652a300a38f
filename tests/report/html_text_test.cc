// SPDX-License-Identifier: Apache-2.0
#include "fullshard/report/charts/html_text.h"

#include <gtest/gtest.h>

namespace fullshard::report {
namespace {

TEST(EscapeHtml, LeavesNothingThatAPageWouldAct) {
  EXPECT_EQ(escape_html("<script>alert('x' & \"y\")</script>"),
            "&lt;script&gt;alert(&#39;x&#39; &amp; &quot;y&quot;)&lt;/script&gt;");
}

TEST(EscapeHtml, KeepsWordsOfAllScripts) {
  EXPECT_EQ(escape_html("né \xE2\x82\xAC \xF0\x9F\x98\x80\ttab\nline"),
            "né \xE2\x82\xAC \xF0\x9F\x98\x80\ttab\nline");
}

TEST(EscapeHtml, TakesOutColoursAndControls) {
  EXPECT_EQ(escape_html("\x1b[1;32mgreen\x1b[0m\r\b\x7f!"), "green!");
  EXPECT_EQ(escape_html("\x1b"), "");
  EXPECT_EQ(escape_html("\x1b[12"), "");
  EXPECT_EQ(escape_html(std::string_view("a\0b", 3)), "ab");
}

TEST(EscapeHtml, ReplacesWhatIsNotUtf8) {
  EXPECT_EQ(escape_html("\xFF<"), "\xEF\xBF\xBD&lt;");
  EXPECT_EQ(escape_html("\xE2\x82"), "\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(escape_html("\xC0\xBC"), "\xEF\xBF\xBD\xEF\xBF\xBD");  // an overlong '<'
  EXPECT_EQ(escape_html("\xED\xA0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");  // a surrogate
}

TEST(Shortened, CutsBetweenCharacters) {
  EXPECT_EQ(shortened("abc", 3), "abc");
  EXPECT_EQ(shortened("abcd", 3), "abc\xE2\x80\xA6");
  EXPECT_EQ(shortened("a\xE2\x82\xAC!", 3), "a\xE2\x80\xA6");
}

}  // namespace
}  // namespace fullshard::report
