# CPack runs this over the installed files before it makes packages. It applies Debian's rules for files in a package.
find_program(GZIP gzip REQUIRED)
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)  # of SOURCE_DATE_EPOCH, where that is set

foreach(component ${CPACK_COMPONENTS_ALL})
  set(root "${CPACK_TEMPORARY_INSTALL_DIRECTORY}/${component}")
  string(TOUPPER ${component} upper)
  set(folder "${root}/usr/share/doc/${CPACK_DEBIAN_${upper}_PACKAGE_NAME}")
  configure_file("${CMAKE_CURRENT_LIST_DIR}/copyright" "${folder}/copyright" COPYONLY)
  file(WRITE "${folder}/changelog" "splitnic (${CPACK_PACKAGE_VERSION}) unstable; urgency=medium

  * The state of the source tree that this package was built from.

 -- ${CPACK_PACKAGE_CONTACT}  ${date}
")
  file(GLOB pages "${root}/usr/share/man/man*/*")
  execute_process(COMMAND "${GZIP}" -9n "${folder}/changelog" ${pages} COMMAND_ERROR_IS_FATAL ANY)

  # The system finds libraries in /usr by itself.
  file(GLOB binaries "${root}/usr/bin/*" "${root}/usr/lib/*/*.so.*" "${root}/usr/libexec/splitnic-tests/bin/*")
  foreach(binary ${binaries})
    file(READ "${binary}" magic LIMIT 4 HEX)
    if(magic STREQUAL 7f454c46 AND NOT IS_SYMLINK "${binary}")
      file(RPATH_REMOVE FILE "${binary}")
    endif()
  endforeach()
endforeach()
