# Installs the build into a fresh folder, builds a project outside the tree against it, and runs
# the program. Called as: cmake -D BUILD=… -D SOURCE=… -D WORK=… -D COMPILER=… -D LAUNCHER=… -P run.cmake
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output
                  ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}: status ${status}\n${output}")
  endif()
endfunction()

set(program "${SOURCE}/examples/shard_your_module.cc")
if(NOT EXISTS "${program}")
  set(program "${SOURCE}/tests/install/smallest.cc")
endif()

file(REMOVE_RECURSE "${WORK}")
run("${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${WORK}/prefix")
run("${CMAKE_COMMAND}" -S "${SOURCE}/tests/install" -B "${WORK}/build" -G Ninja
    "-DPROGRAM=${program}" "-DCMAKE_PREFIX_PATH=${WORK}/prefix" "-DCMAKE_CXX_COMPILER=${COMPILER}"
    "-DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER}")
run("${CMAKE_COMMAND}" --build "${WORK}/build")
run("${WORK}/build/outside")
if(EXISTS "${WORK}/prefix/bin/fullshard")
  run("${WORK}/prefix/bin/fullshard" launch --ranks 2 -- "${WORK}/build/outside")
endif()
