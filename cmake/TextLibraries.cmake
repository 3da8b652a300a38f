# SPDX-License-Identifier: Apache-2.0
# PCRE2, for regular expressions of tokenizer.json that fullshard/text does not know by heart. Without
# it, text/pipeline/no_regex.cc stands in for text/pipeline/pcre_pattern.cc and refuses them by name.
find_path(FULLSHARD_PCRE2_INCLUDE pcre2.h)
find_library(FULLSHARD_PCRE2_LIBRARY pcre2-8)
mark_as_advanced(FULLSHARD_PCRE2_INCLUDE FULLSHARD_PCRE2_LIBRARY)

if(FULLSHARD_PCRE2_INCLUDE AND FULLSHARD_PCRE2_LIBRARY)
  set(unused no_regex.cc)
  target_include_directories(fullshard_text SYSTEM PRIVATE "${FULLSHARD_PCRE2_INCLUDE}")
  target_link_libraries(fullshard_text PUBLIC "${FULLSHARD_PCRE2_LIBRARY}")
else()
  set(unused pcre_pattern.cc)
endif()
set_source_files_properties("${PROJECT_SOURCE_DIR}/fullshard/text/pipeline/${unused}"
                            PROPERTIES HEADER_FILE_ONLY ON)
