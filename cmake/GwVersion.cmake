# generated/base/version.h: the version, and the commit it was built from.
find_package(Git QUIET)
set(GW_COMMIT unknown)
if(GIT_FOUND)
  execute_process(COMMAND ${GIT_EXECUTABLE} describe --always --dirty --abbrev=12
    WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} OUTPUT_VARIABLE GW_COMMIT_FOUND
    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(GW_COMMIT_FOUND)
    set(GW_COMMIT ${GW_COMMIT_FOUND})
  endif()
endif()
configure_file(${CMAKE_SOURCE_DIR}/cmake/version.h.in ${CMAKE_BINARY_DIR}/generated/base/version.h
  @ONLY)
