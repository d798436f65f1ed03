# Compiles through ccache, so that what another build has compiled already only links: a second clone, a change that was
# taken back, a planted bug. Paths count relative to the source tree; a debugger that looks for the sources of an object
# which another clone has compiled finds them from the folder of the build.
option(SPLITNIC_CCACHE "Compile through ccache, if it is installed" ON)
find_program(SPLITNIC_CCACHE_PROGRAM ccache)
mark_as_advanced(SPLITNIC_CCACHE_PROGRAM)
if(SPLITNIC_CCACHE AND SPLITNIC_CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(launcher "${CMAKE_COMMAND}" -E env "CCACHE_BASEDIR=${CMAKE_SOURCE_DIR}" CCACHE_NOHASHDIR=1
    CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
    "${SPLITNIC_CCACHE_PROGRAM}")
  set(CMAKE_C_COMPILER_LAUNCHER "${launcher}")
  set(CMAKE_CXX_COMPILER_LAUNCHER "${launcher}")
  # Without it, GCC's preprocessed text does not name the precompiled headers, and ccache does not take it.
  add_compile_options("$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>")
endif()
