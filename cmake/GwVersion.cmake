# generated/base/version.h: the version, and the commit that the program is built from. Asked at each
# build, since between two of them commits come and files change without a new configuration; the file
# is rewritten only when its text changes, or every build would compile its users.
find_package(Git QUIET)
add_custom_target(gw_version
  COMMAND ${CMAKE_COMMAND} -DSOURCE=${CMAKE_SOURCE_DIR} -DGIT=${GIT_EXECUTABLE}
    -DVERSION=${PROJECT_VERSION} -DGEMM=${GW_GEMM}
    -DOUT=${CMAKE_BINARY_DIR}/generated/base/version.h
    -P ${CMAKE_SOURCE_DIR}/cmake/GwCommit.cmake
  BYPRODUCTS ${CMAKE_BINARY_DIR}/generated/base/version.h
  COMMENT "" VERBATIM)
