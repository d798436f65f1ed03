# The work of the test `install`, see CMakeLists.txt.
set(work "${BUILD_DIR}/install-test")
set(prefix "${work}/prefix")
file(REMOVE_RECURSE "${work}")

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE failed OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(failed)
    message(FATAL_ERROR "${ARGN}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

# build_outside(PROJECT variable...): configures, builds and runs one of the projects beside this file.
function(build_outside project)
  run(${environment} "${CMAKE_COMMAND}" -S "${SOURCE_DIR}/${project}" -B "${work}/${project}" -G Ninja
      "-DCMAKE_PREFIX_PATH=${prefix}" -DCMAKE_BUILD_TYPE=Release "-DCMAKE_CXX_COMPILER=${CXX}"
      "-DCMAKE_CXX_FLAGS=${CXX_FLAGS}" "-DPROGRAM=${PROGRAM}" ${ARGN})
  run("${CMAKE_COMMAND}" --build "${work}/${project}")
  run("${work}/${project}/${project}")
endfunction()

# What a shared library uses by itself, its users need not have: neither by CMake nor by pkg-config.
set(private CapnProto PCAP LibPcap OpenSSL PkgConfig spdlog Threads)
set(only_public "${work}/pkgconfig")
run(pkg-config --variable=pcfiledir fmt)
string(STRIP "${output}" pcfiledir)
file(COPY "${pcfiledir}/fmt.pc" DESTINATION "${only_public}")

run("${CMAKE_COMMAND}" --install "${BUILD_DIR}" --prefix "${prefix}")
if(SHARED)
  set(environment "${CMAKE_COMMAND}" -E env "PKG_CONFIG_LIBDIR=${prefix}/${LIBDIR}/pkgconfig:${only_public}")
  list(TRANSFORM private REPLACE "(.+)" "-DCMAKE_DISABLE_FIND_PACKAGE_\\1=ON" OUTPUT_VARIABLE disabled)
else()
  set(environment "${CMAKE_COMMAND}" -E env "PKG_CONFIG_PATH=${prefix}/${LIBDIR}/pkgconfig")
endif()
build_outside(appliance ${disabled})
build_outside(verbs ${disabled})

foreach(layer common fabric messaging host iounit)
  run(${environment} pkg-config --print-errors --exists "splitnic-${layer} >= 0.2")
endforeach()
run(${environment} pkg-config --cflags --libs splitnic-fabric)
if(SHARED AND output MATCHES "capnp|kj|pcap|mnl|spdlog|isal")
  message(FATAL_ERROR "splitnic-fabric.pc names private libraries: ${output}")
endif()
separate_arguments(flags UNIX_COMMAND "${CXX_FLAGS} ${output}")
run("${CXX}" -std=c++20 "${SOURCE_DIR}/pkg_config/main.cpp" -o "${work}/by_pkg_config" ${flags}
    "-Wl,-rpath,${prefix}/${LIBDIR}")
run("${work}/by_pkg_config")
