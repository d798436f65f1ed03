# `cpack -G DEB` in the build folder makes one Debian package per component, in packages/: program, libraries,
# development, tests. After every install() of the project.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME splitnic)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")  # each package has its own
set(CPACK_PACKAGE_VENDOR "the splitnic maintainers")
set(CPACK_PACKAGE_CONTACT "splitnic maintainers <maintainers@splitnic.invalid>")
set(CPACK_PACKAGE_DIRECTORY "${CMAKE_BINARY_DIR}/packages")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_COMPONENTS_ALL program libraries development)
if(SPLITNIC_TESTS)
  list(APPEND CPACK_COMPONENTS_ALL tests)
endif()
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_PRE_BUILD_SCRIPTS "${PROJECT_SOURCE_DIR}/tools/package/debian/finish.cmake")

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "${CMAKE_BINARY_DIR}/lib")
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY "=")

# splitnic_package(COMPONENT name section depends description): the names of packages carry the libraries' soname.
macro(splitnic_package component name section depends summary text)
  string(TOUPPER ${component} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${name})
  set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION ${section})
  set(CPACK_DEBIAN_${upper}_PACKAGE_DEPENDS "${depends}")
  set(CPACK_DEBIAN_${upper}_DESCRIPTION "${summary}\n${text}")
endmacro()

set(libraries "libsplitnic${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}")
set(same "(= ${PROJECT_VERSION})")
set(about "splitnic is a network driver split in two. A host module driver gives a
host a virtual NIC, an I/O-unit module driver owns the real NIC and serves
many hosts. They push frames to each other over an RDMA channel fabric.")
splitnic_package(program splitnic net "${libraries} ${same}" "virtual NICs over an RDMA channel fabric" "${about}
.
This package has the program, its manual pages and the units of systemd.")
splitnic_package(libraries ${libraries} libs "libpcap0.8" "virtual NICs over an RDMA channel fabric - libraries" "${about}
.
This package has the shared libraries.")
splitnic_package(development libsplitnic-dev libdevel
  "${libraries} ${same}, libboost1.81-dev, libfmt-dev, libexpected-dev"
  "virtual NICs over an RDMA channel fabric - development files" "${about}
.
This package has the headers and what CMake and pkg-config look for.")
splitnic_package(tests splitnic-tests net "splitnic ${same}, ${libraries} ${same}, python3, iproute2"
  "virtual NICs over an RDMA channel fabric - tests" "${about}
.
This package has the tests; splitnic-tests runs them.")
set(CPACK_DEBIAN_TESTS_PACKAGE_RECOMMENDS
  "busybox, curl, dnsmasq-base, ethtool, ibverbs-utils, iperf3, iputils-ping, procps, python3-jsonschema, \
rdmacm-utils, tcpdump, tshark")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_CONTROL_EXTRA "${PROJECT_SOURCE_DIR}/tools/package/debian/postinst;\
${PROJECT_SOURCE_DIR}/tools/package/debian/prerm;${PROJECT_SOURCE_DIR}/tools/package/debian/postrm")
set(CPACK_DEBIAN_LIBRARIES_PACKAGE_CONTROL_EXTRA "${PROJECT_SOURCE_DIR}/tools/package/debian/triggers")
include(CPack)
