# How every target of the house is made: warnings are errors, one library per layer, one unit-test program per layer.
include(CMakePackageConfigHelpers)

option(SPLITNIC_AUDIT_LOADS "Count loads of peer-written memory so that a second load of a field fails a test" OFF)

add_library(splitnic_warnings INTERFACE)
target_compile_options(splitnic_warnings INTERFACE -Wall -Wextra -Wconversion -Wshadow -Werror)

# splitnic_layer(NAME DEPENDS layer... LIBRARIES lib... PRIVATE_LIBRARIES lib...): the library of the folder it is called in; all *.cpp below it.
function(splitnic_layer name)
  cmake_parse_arguments(ARG "" "" "DEPENDS;LIBRARIES;PRIVATE_LIBRARIES;GENERATED" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "*.cpp")
  add_library(splitnic_${name} ${sources} ${ARG_GENERATED})
  add_library(splitnic::${name} ALIAS splitnic_${name})
  target_include_directories(splitnic_${name} PUBLIC
    "$<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}>" "$<BUILD_INTERFACE:${CMAKE_BINARY_DIR}>"
    "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/splitnic>")
  target_compile_features(splitnic_${name} PUBLIC cxx_std_20)
  target_link_libraries(splitnic_${name} PRIVATE $<BUILD_INTERFACE:splitnic_warnings>)
  foreach(layer ${ARG_DEPENDS})
    target_link_libraries(splitnic_${name} PUBLIC splitnic_${layer})
  endforeach()
  target_link_libraries(splitnic_${name} PUBLIC ${ARG_LIBRARIES} PRIVATE ${ARG_PRIVATE_LIBRARIES})
  if(SPLITNIC_AUDIT_LOADS)
    target_compile_definitions(splitnic_${name} PUBLIC SPLITNIC_AUDIT_LOADS)
  endif()
  if(BUILD_SHARED_LIBS)
    target_link_options(splitnic_${name} PRIVATE -Wl,-Bsymbolic-functions)
  endif()
  set_target_properties(splitnic_${name} PROPERTIES
    OUTPUT_NAME splitnic-${name} EXPORT_NAME ${name}
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  install(TARGETS splitnic_${name} EXPORT splitnic-targets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}/" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/splitnic/${name}"
    FILES_MATCHING PATTERN "*.h" PATTERN "*.capnp")
endfunction()

# splitnic_unit_tests(LAYER lib...): one program from tests/unit/LAYER/**/*_test.cpp; each TEST_CASE is a ctest test.
function(splitnic_unit_tests layer)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${layer}/*.cpp")
  if(NOT sources)
    return()
  endif()
  add_executable(unit_${layer} ${sources})
  target_link_libraries(unit_${layer} PRIVATE splitnic_warnings splitnic_catch_main ${ARGN})
  catch_discover_tests(unit_${layer} TEST_PREFIX "${layer}: " PROPERTIES TIMEOUT 120 SKIP_RETURN_CODE 77)
endfunction()

function(splitnic_install_package)
  configure_package_config_file("${CMAKE_SOURCE_DIR}/tools/cmake/splitnic-config.cmake.in"
    "${CMAKE_BINARY_DIR}/splitnic-config.cmake" INSTALL_DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/splitnic")
  write_basic_package_version_file("${CMAKE_BINARY_DIR}/splitnic-config-version.cmake" COMPATIBILITY SameMinorVersion)
  install(FILES "${CMAKE_BINARY_DIR}/splitnic-config.cmake" "${CMAKE_BINARY_DIR}/splitnic-config-version.cmake"
    DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/splitnic")
  install(EXPORT splitnic-targets NAMESPACE splitnic:: DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/splitnic")
endfunction()
