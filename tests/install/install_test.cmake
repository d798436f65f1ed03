set(prefix "${BUILD_DIR}/install-test/prefix")
file(REMOVE_RECURSE "${BUILD_DIR}/install-test")

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE failed OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(failed)
    message(FATAL_ERROR "${ARGN}\n${output}")
  endif()
endfunction()

run("${CMAKE_COMMAND}" --install "${BUILD_DIR}" --prefix "${prefix}")
foreach(project appliance verbs)
  set(work "${BUILD_DIR}/install-test/${project}")
  run("${CMAKE_COMMAND}" -S "${SOURCE_DIR}/${project}" -B "${work}" -G Ninja "-DCMAKE_PREFIX_PATH=${prefix}"
      -DCMAKE_BUILD_TYPE=Release "-DCMAKE_CXX_FLAGS=${CXX_FLAGS}" "-DPROGRAM=${PROGRAM}")
  run("${CMAKE_COMMAND}" --build "${work}")
  run("${work}/${project}")
endforeach()
