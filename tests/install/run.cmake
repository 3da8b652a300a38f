# SPDX-License-Identifier: Apache-2.0
# Installs the build into a fresh folder, builds a project outside the tree against it, and runs
# its programs, README's among them; then the installed commands, up to training on two ranks. Called as: cmake -D BUILD=… -D SOURCE=… -D WORK=… -D COMPILER=… -D LAUNCHER=… -P run.cmake
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

# The first program that README shows, letter by letter.
file(READ "${SOURCE}/README.md" page)
string(FIND "${page}" "```cpp\n" begin)
math(EXPR begin "${begin} + 7")
string(SUBSTRING "${page}" ${begin} -1 page)
string(FIND "${page}" "```" length)
string(SUBSTRING "${page}" 0 ${length} page)
file(WRITE "${WORK}/readme.cc" "${page}")

run("${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${WORK}/prefix")
run("${CMAKE_COMMAND}" -S "${SOURCE}/tests/install" -B "${WORK}/build" -G Ninja
    "-DPROGRAM=${program}" "-DREADME_PROGRAM=${WORK}/readme.cc" "-DCMAKE_PREFIX_PATH=${WORK}/prefix" "-DCMAKE_CXX_COMPILER=${COMPILER}"
    "-DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER}")
run("${CMAKE_COMMAND}" --build "${WORK}/build")
run("${WORK}/build/outside")
run("${WORK}/build/readme")

# refused(<target> <pattern>): what a compiler says of a wrong call begins with it.
function(refused target pattern)
  execute_process(COMMAND "${CMAKE_COMMAND}" --build "${WORK}/build" --target ${target}
                  RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  string(REGEX MATCH "[^\n]*: error: [^\n]*\n[^\n]*\n[^\n]*\n[^\n]*\n[^\n]*" first "${output}")
  if(status EQUAL 0 OR NOT first MATCHES "${pattern}")
    message(FATAL_ERROR "${target}: status ${status}, expected '${pattern}' in the first lines of\n${output}")
  endif()
endfunction()
refused(misspelt_option "sync_module_state = true")
refused(module_in_place_of_holder "takes a module's holder")
if(NOT EXISTS "${WORK}/prefix/bin/fullshard")
  return()
endif()
run("${WORK}/prefix/bin/fullshard" launch --ranks 2 -- "${WORK}/build/outside")
run("${WORK}/prefix/bin/fullshard" launch --ranks 2 -- "${WORK}/build/readme")

# The installed commands, with nothing of this build's environment: no LD_LIBRARY_PATH, no PATH into
# the tree.
file(MAKE_DIRECTORY "${WORK}/home")
function(installed)
  execute_process(COMMAND env -i PATH=/usr/bin:/bin "HOME=${WORK}/home" OMP_NUM_THREADS=1
                          "${WORK}/prefix/bin/fullshard" ${ARGN}
                  WORKING_DIRECTORY "${WORK}/home" RESULT_VARIABLE status OUTPUT_VARIABLE output
                  ERROR_VARIABLE problem)
  list(JOIN ARGN " " command)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "fullshard ${command}: status ${status}\n${output}${problem}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()
function(expect pattern)
  if(NOT output MATCHES "${pattern}")
    message(FATAL_ERROR "expected '${pattern}' in\n${output}")
  endif()
endfunction()

installed(--version)
expect("^fullshard [0-9]+\\.[0-9]+\\.[0-9]+\n$")
installed(doctor --json)
string(JSON num_facts LENGTH "${output}" facts)
expect("\"subject\": \"libtorch\", \"found\": \"[0-9]+\\.")

file(WRITE "${WORK}/home/tiny/config.json" [[{"architectures": ["LlamaForCausalLM"],
  "model_type": "llama", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
  "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 260,
  "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "hidden_act": "silu"}]])
installed(data make --kind sums --samples 400 --seed 1 --output sums.txt)
installed(train --ranks 2 --model tiny --tokenizer bytes --data sums.txt --sequence-length 32
          --micro-batch 4 --steps 4 --output run --json)
string(JSON status GET "${output}" status)
string(JSON steps GET "${output}" steps)
if(NOT status MATCHES "^(finished|done)$" OR NOT steps EQUAL 4)
  message(FATAL_ERROR "train: ${output}")
endif()
# The tokenizer is remembered in the folder.
installed(eval --ranks 2 --model run/model --data sums.txt --sequence-length 32 --json)
string(JSON loss GET "${output}" loss)
