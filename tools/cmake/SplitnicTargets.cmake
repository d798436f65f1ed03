# How every target of the house is made: warnings are errors, one library per layer, one unit-test program per layer.
include(CMakePackageConfigHelpers)

option(SPLITNIC_AUDIT_LOADS "Count loads of peer-written memory so that a second load of a field fails a test" OFF)

add_library(splitnic_warnings INTERFACE)
target_compile_options(splitnic_warnings INTERFACE -Wall -Wextra -Wconversion -Wshadow -Werror)

# What makes the exploitation of a memory fault harder in shipped programs and libraries: they lie at random addresses,
# their relocations are done at the start and then read-only, no stack is executable, functions with buffers on the
# stack check it before they return, the C library checks the sizes that the compiler knows, and calls through pointers
# can only reach the beginnings of functions where the processor checks it. Sanitizers check more, and replace what the
# compiler adds; unoptimised code can't be fortified. tests/layers/hardened_test.py reads the built files.
include(CheckPIESupported)
check_pie_supported(LANGUAGES CXX)
add_library(splitnic_hardening INTERFACE)
target_link_options(splitnic_hardening INTERFACE -Wl,-z,relro,-z,now,-z,noexecstack)
set(SPLITNIC_HARDENED_CODE OFF)
if(NOT CMAKE_CXX_FLAGS MATCHES "-fsanitize" AND NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
  set(SPLITNIC_HARDENED_CODE ON)
  target_compile_options(splitnic_hardening INTERFACE -fstack-protector-strong -fstack-clash-protection
    "SHELL:-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2")
  if(CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
    target_compile_options(splitnic_hardening INTERFACE -fcf-protection=full)
  endif()
endif()

# Several files of a target are compiled at a time, which takes a third of the time that they take one by one. So within
# a library no two files may have different things of one name in one namespace, unnamed namespaces included. Without it:
# the linter, and the fuzzers' build, which shows what a file does not include itself.
option(SPLITNIC_UNITY "Compile several files of a target at a time" ON)
set(CMAKE_UNITY_BUILD ${SPLITNIC_UNITY})
set(CMAKE_UNITY_BUILD_BATCH_SIZE 8)

# What nearly every file includes, compiled once for all targets with the same flags: reading it takes 1.5 s of the 2 to
# 4 s of most files, and each such copy is 90 MB. A file still includes what it uses: the linter and the fuzzers' build go
# without.
option(SPLITNIC_PRECOMPILE "Precompile the headers that nearly every file includes" ON)
# splitnic_precompiled_headers(TARGET header...): a target that has them, for others to use; headers are further ones.
function(splitnic_precompiled_headers target)
  target_precompile_headers(${target} PRIVATE <algorithm> <array> <atomic> <chrono> <cstdint> <cstring> <functional>
    <map> <memory> <optional> <ranges> <span> <string> <string_view> <tuple> <utility> <variant> <vector>
    "${CMAKE_SOURCE_DIR}/common/result.h" "${CMAKE_SOURCE_DIR}/common/time.h" ${ARGN})
endfunction()
# splitnic_precompile(TARGET [HARDENED]): it uses the copy that is compiled as it is: HARDENED or not, and with the code
# of a library or of a program.
function(splitnic_precompile target)
  if(NOT SPLITNIC_PRECOMPILE)
    return()
  endif()
  get_target_property(type ${target} TYPE)
  set(headers splitnic_headers)
  if("HARDENED" IN_LIST ARGN)
    string(APPEND headers _hardened)
  endif()
  if(type STREQUAL "EXECUTABLE")
    string(APPEND headers _program)
  endif()
  if(NOT TARGET ${headers})
    if(type STREQUAL "EXECUTABLE")
      add_executable(${headers} EXCLUDE_FROM_ALL "${CMAKE_SOURCE_DIR}/tools/cmake/empty_main.cpp")
    else()
      add_library(${headers} OBJECT EXCLUDE_FROM_ALL "${CMAKE_SOURCE_DIR}/tools/cmake/empty_main.cpp")
    endif()
    target_include_directories(${headers} PRIVATE "${CMAKE_SOURCE_DIR}")
    target_compile_features(${headers} PRIVATE cxx_std_20)
    target_link_libraries(${headers} PRIVATE fmt::fmt splitnic_warnings)
    if(SPLITNIC_AUDIT_LOADS)
      target_compile_definitions(${headers} PRIVATE SPLITNIC_AUDIT_LOADS)
    endif()
    if("HARDENED" IN_LIST ARGN)
      target_link_libraries(${headers} PRIVATE splitnic_hardening)
    endif()
    splitnic_precompiled_headers(${headers})
  endif()
  target_precompile_headers(${target} REUSE_FROM ${headers})
endfunction()

# splitnic_layer(NAME DEPENDS layer... LIBRARIES lib... PRIVATE_LIBRARIES lib... PRIVATE_MODULES module...): the library
# of the folder it is called in; all *.cpp below it. LIBRARIES are what its headers include; the private ones are used
# by its sources alone, so that programs which link the shared library need not find them. PRIVATE_MODULES are
# pkg-config's names. EXCLUDE: folders below it that are not the library's. INLINES: nobody replaces its functions one by
# one, so they may be inlined into each other although they are exported.
function(splitnic_layer name)
  cmake_parse_arguments(ARG "INLINES" "" "DEPENDS;LIBRARIES;PRIVATE_LIBRARIES;PRIVATE_MODULES;GENERATED;EXCLUDE" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "*.cpp")
  foreach(folder ${ARG_EXCLUDE})
    list(FILTER sources EXCLUDE REGEX "^${CMAKE_CURRENT_SOURCE_DIR}/${folder}/")
  endforeach()
  add_library(splitnic_${name} ${sources} ${ARG_GENERATED})
  add_library(splitnic::${name} ALIAS splitnic_${name})
  target_include_directories(splitnic_${name} PUBLIC
    "$<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}>" "$<BUILD_INTERFACE:${CMAKE_BINARY_DIR}>"
    "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/splitnic>")
  target_compile_features(splitnic_${name} PUBLIC cxx_std_20)
  target_link_libraries(splitnic_${name} PRIVATE $<BUILD_INTERFACE:splitnic_warnings>
    $<BUILD_INTERFACE:splitnic_hardening>)
  foreach(layer ${ARG_DEPENDS})
    target_link_libraries(splitnic_${name} PUBLIC splitnic_${layer})
  endforeach()
  list(TRANSFORM ARG_PRIVATE_MODULES PREPEND "PkgConfig::" OUTPUT_VARIABLE modules)
  target_link_libraries(splitnic_${name} PUBLIC ${ARG_LIBRARIES} PRIVATE ${ARG_PRIVATE_LIBRARIES} ${modules})
  set_property(GLOBAL PROPERTY splitnic_${name}_libraries ${ARG_LIBRARIES} ${ARG_PRIVATE_LIBRARIES} ${modules})
  if(SPLITNIC_AUDIT_LOADS)
    target_compile_definitions(splitnic_${name} PUBLIC SPLITNIC_AUDIT_LOADS)
  endif()
  if(ARG_INLINES)
    # Precompiled headers keep the flag with which they were compiled, so those that others use would switch it off.
    target_compile_options(splitnic_${name} PRIVATE -fno-semantic-interposition)
    if(SPLITNIC_PRECOMPILE)
      splitnic_precompiled_headers(splitnic_${name})
    endif()
  else()
    splitnic_precompile(splitnic_${name} HARDENED)
  endif()
  if(BUILD_SHARED_LIBS)
    set(script "${CMAKE_SOURCE_DIR}/tools/cmake/exports.map")
    target_link_options(splitnic_${name} PRIVATE -Wl,-Bsymbolic-functions "-Wl,--version-script=${script}")
    set_target_properties(splitnic_${name} PROPERTIES LINK_DEPENDS "${script}")
  endif()
  set_target_properties(splitnic_${name} PROPERTIES
    OUTPUT_NAME splitnic-${name} EXPORT_NAME ${name}
    INSTALL_RPATH "$ORIGIN" VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  splitnic_install_layer(${name} "${ARG_DEPENDS}" "${ARG_PRIVATE_MODULES}" "${ARG_EXCLUDE}")
endfunction()

# splitnic_contain_layers(TARGET): a program that starts quickly: it contains the layers, and of what they use that
# which Debian has as archives and which is slow to load. The loader looks for each symbol of a library in all libraries
# before it: so the one with the most symbols, the C++ library, is the first.
function(splitnic_contain_layers target)
  target_link_options(${target} PRIVATE "LINKER:--push-state,--no-as-needed" -lstdc++ "LINKER:--pop-state")
  get_property(layers GLOBAL PROPERTY splitnic_layers)
  foreach(layer ${layers})
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:splitnic_${layer}>)
    get_property(libraries GLOBAL PROPERTY splitnic_${layer}_libraries)
    if("PkgConfig::capnp" IN_LIST libraries)
      find_library(SPLITNIC_CAPNP_ARCHIVE libcapnp.a)
      find_library(SPLITNIC_KJ_ARCHIVE libkj.a)
      if(SPLITNIC_CAPNP_ARCHIVE AND SPLITNIC_KJ_ARCHIVE)
        list(TRANSFORM libraries REPLACE "^PkgConfig::capnp$" "${SPLITNIC_CAPNP_ARCHIVE};${SPLITNIC_KJ_ARCHIVE}")
      endif()
    endif()
    target_link_libraries(${target} PRIVATE ${libraries})
  endforeach()
endfunction()

# The installed library, its headers, what find_package takes of it, and its .pc file.
function(splitnic_install_layer name depends private_modules excluded)
  set(patterns)
  foreach(folder ${excluded})
    list(APPEND patterns PATTERN ${folder} EXCLUDE)
  endforeach()
  install(TARGETS splitnic_${name} EXPORT splitnic-${name}-targets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT libraries NAMELINK_COMPONENT development
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
  install(EXPORT splitnic-${name}-targets NAMESPACE splitnic::
    DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/splitnic" COMPONENT development)
  install(DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}/" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/splitnic/${name}"
    COMPONENT development FILES_MATCHING PATTERN "*.h" PATTERN "*.capnp" ${patterns})

  # The layers below, all the way down, for find_package.
  set(needs)
  foreach(layer ${depends})
    get_property(below GLOBAL PROPERTY splitnic_${layer}_needs)
    list(APPEND needs ${layer} ${below})
  endforeach()
  set_property(GLOBAL PROPERTY splitnic_${name}_needs ${needs})
  set_property(GLOBAL APPEND PROPERTY splitnic_layers ${name})
  set_property(GLOBAL APPEND_STRING PROPERTY splitnic_layer_facts
    "set(_splitnic_${name}_needs ${needs})\nset(_splitnic_${name}_modules ${private_modules})\n")

  # pkg-config looks for Requires.private even when it only prints flags of the compiler. A shared library's private
  # needs are therefore not listed at all.
  if(depends)
    list(TRANSFORM depends REPLACE "(.+)" "splitnic-\\1 = ${PROJECT_VERSION}" OUTPUT_VARIABLE requires)
  else()
    set(requires fmt)
  endif()
  if(NOT BUILD_SHARED_LIBS)
    list(APPEND requires spdlog ${private_modules})
  endif()
  list(JOIN requires ", " requires)
  set(definitions "$<$<BOOL:${SPLITNIC_AUDIT_LOADS}>: -DSPLITNIC_AUDIT_LOADS>")
  string(REGEX REPLACE "[^/]+" ".." prefix_from_pc "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
  configure_file("${PROJECT_SOURCE_DIR}/tools/cmake/splitnic-layer.pc.in" "${CMAKE_CURRENT_BINARY_DIR}/layer.pc.in" @ONLY)
  file(GENERATE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/splitnic-${name}.pc" INPUT "${CMAKE_CURRENT_BINARY_DIR}/layer.pc.in")
  install(FILES "${CMAKE_CURRENT_BINARY_DIR}/splitnic-${name}.pc"
    DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" COMPONENT development)
endfunction()

# The tests as a package: programs, and the integration tests with their laboratory as they lie in the source tree.
set(SPLITNIC_TESTS_DIR "${CMAKE_INSTALL_LIBEXECDIR}/splitnic-tests")

# splitnic_on_verbs(TARGET library...): a program on splitnic's libraries of verbs, which it finds in their folder, before
# the system's.
function(splitnic_on_verbs target)
  target_link_libraries(${target} PRIVATE ${ARGN})
  set_property(TARGET ${target} APPEND PROPERTY INSTALL_RPATH "$ORIGIN/../lib/splitnic")
endfunction()

# splitnic_test_options(TARGET): how the tests' own code is compiled, and their precompiled headers. Checks for undefined
# behaviour would nearly double the time for it under that sanitizer; the libraries that are tested have them.
function(splitnic_test_options target)
  target_compile_options(${target} PRIVATE -O0)
  if(CMAKE_CXX_FLAGS MATCHES "-fsanitize=[a-z,]*undefined")
    target_compile_options(${target} PRIVATE -fno-sanitize=undefined)
  endif()
endfunction()

# splitnic_test_program(TARGET): what the programs of the tests have in common. Their own code is not optimised: that
# takes a third off the time to compile them; what they test is. All use the same precompiled headers. Each file has a
# namespace of its own, so that many can be compiled at a time.
function(splitnic_test_program target)
  target_link_libraries(${target} PRIVATE splitnic_warnings splitnic_catch_main fmt::fmt)  # as the precompiled headers
  splitnic_test_options(${target})
  set_target_properties(${target} PROPERTIES UNITY_BUILD_BATCH_SIZE 16)
  if(SPLITNIC_PRECOMPILE)
    target_precompile_headers(${target} REUSE_FROM splitnic_test_headers)
  endif()
  if(SPLITNIC_AUDIT_LOADS)  # also for a program that uses a C interface alone, as the headers are precompiled with it
    target_compile_definitions(${target} PRIVATE SPLITNIC_AUDIT_LOADS)
  endif()
endfunction()

# Files that name none of these run in one thread, so ThreadSanitizer finds nothing there.
option(SPLITNIC_THREAD_TESTS "Leave out the unit tests' files that name nothing with threads" OFF)
set(SPLITNIC_NAMES_OF_THREADS "[Tt]hread|SharedAdapter|[Dd]oorman|Listener|elsewhere")

# splitnic_unit_tests(LAYER lib...): one program from tests/unit/LAYER/**/*_test.cpp; each TEST_CASE is a ctest test,
# except under a sanitizer, where the start of the program for each of a thousand tests would take minutes.
function(splitnic_unit_tests layer)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${layer}/*.cpp")
  if(SPLITNIC_THREAD_TESTS)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${sources})
    set(tests ${sources})
    list(FILTER tests INCLUDE REGEX "_test.cpp$")
    foreach(source ${tests})
      file(STRINGS "${source}" names LIMIT_COUNT 1 REGEX "${SPLITNIC_NAMES_OF_THREADS}")
      if(NOT names)
        list(REMOVE_ITEM sources "${source}")
      endif()
    endforeach()
  endif()
  if(NOT sources)
    return()
  endif()
  add_executable(unit_${layer} ${sources})
  target_link_libraries(unit_${layer} PRIVATE ${ARGN})
  splitnic_test_program(unit_${layer})
  install(TARGETS unit_${layer} RUNTIME DESTINATION "${SPLITNIC_TESTS_DIR}/bin" COMPONENT tests EXCLUDE_FROM_ALL)
  if(CMAKE_CXX_FLAGS MATCHES "-fsanitize")
    add_test(NAME "${layer}: all unit tests" COMMAND unit_${layer})
    set_tests_properties("${layer}: all unit tests" PROPERTIES TIMEOUT 900)
  else()
    catch_discover_tests(unit_${layer} TEST_PREFIX "${layer}: " PROPERTIES TIMEOUT 120)
  endif()
endfunction()

# Configuration for find_package; after every layer.
function(splitnic_install_package)
  get_property(SPLITNIC_LAYERS GLOBAL PROPERTY splitnic_layers)
  list(JOIN SPLITNIC_LAYERS " " SPLITNIC_LAYERS)
  get_property(SPLITNIC_LAYER_FACTS GLOBAL PROPERTY splitnic_layer_facts)
  configure_package_config_file("${CMAKE_SOURCE_DIR}/tools/cmake/splitnic-config.cmake.in"
    "${CMAKE_BINARY_DIR}/splitnic-config.cmake" INSTALL_DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/splitnic")
  write_basic_package_version_file("${CMAKE_BINARY_DIR}/splitnic-config-version.cmake" COMPATIBILITY SameMinorVersion)
  install(FILES "${CMAKE_BINARY_DIR}/splitnic-config.cmake" "${CMAKE_BINARY_DIR}/splitnic-config-version.cmake"
    DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/splitnic" COMPONENT development)
endfunction()
