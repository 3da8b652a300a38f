// SPDX-License-Identifier: Apache-2.0
#include "fullshard/launch/start_problem.h"

#include <gtest/gtest.h>

#include "shell.h"

namespace fullshard::launch {
namespace {

TEST(StartProblem, SaysWhatToWriteInstead) {
  const TemporaryFolder folder;
  for (const std::string name : {"own", "own.py"}) folder.write(name, "#!/bin/sh\necho runs\n");
  folder.write("old.py", "#!/no/such/python\n");
  for (const std::string name : {"own", "old.py"}) {
    std::filesystem::permissions(folder / name, std::filesystem::perms::owner_all);
  }
  const auto start = [&](const std::string& program) {
    return shell("cd " + folder.path() + "; fullshard launch -n 1 " + program).output;
  };
  EXPECT_EQ(start("./own"), "runs\n");
  EXPECT_EQ(start("own"), "error: launch: 'own' is not on PATH, but in this folder; write ./own\n");
  EXPECT_EQ(start("own.py"),
            "error: launch: 'own.py' is not on PATH; it is in this folder, but not "
            "executable: write python own.py, or chmod +x own.py and ./own.py\n");
  EXPECT_EQ(start("./own.py"),
            "error: launch: './own.py' is not executable; write python ./own.py, or "
            "make it so with chmod +x ./own.py\n");
  EXPECT_EQ(start("./old.py"),
            "error: launch: './old.py' exists, but the interpreter that its first line "
            "names does not\n");
  EXPECT_EQ(start("no-such-program"),
            "error: launch: 'no-such-program' is neither on PATH nor a file in this "
            "folder\n");
  EXPECT_EQ(start("/tmp/"), "error: launch: '/tmp/' is a folder, not a program\n");
}

}  // namespace
}  // namespace fullshard::launch
