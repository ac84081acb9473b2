# cmake -DSOURCE=DIR -DGIT=PROGRAM -DVERSION=V -DGEMM=NAME -DOUT=FILE -P GwCommit.cmake: writes FILE
# from version.h.in. The commit is that of the repository whose root is SOURCE, "-dirty" if the tree
# differs from it (a new file counts where the build would compile it), "unknown" without one. The
# version is that of the nearest tag vX.Y.Z and the number of commits since, 1.2.3+4; V without one.
function(gw_git var)
  execute_process(COMMAND ${GIT} ${ARGN} WORKING_DIRECTORY ${SOURCE} RESULT_VARIABLE status
    OUTPUT_VARIABLE text OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(NOT status EQUAL 0)
    set(text "")
  endif()
  set(${var} "${text}" PARENT_SCOPE)
endfunction()

set(GW_COMMIT unknown)
if(GIT)
  gw_git(prefix rev-parse --show-cdup) # empty at the root: sources unpacked in another's tree are not it
  gw_git(inside rev-parse --is-inside-work-tree)
  gw_git(described describe --always --dirty --abbrev=12 --exclude=*)
  if(inside STREQUAL "true" AND prefix STREQUAL "" AND described)
    set(GW_COMMIT ${described})
    gw_git(tagged describe --tags --match v[0-9]*)
    if(tagged MATCHES "^v(.+)$")
      string(REGEX REPLACE "-([0-9]+)-g[0-9a-f]+$" "+\\1" VERSION "${CMAKE_MATCH_1}")
    endif()
    gw_git(new ls-files --others --exclude-standard -- src comm compress)
    if(new AND NOT GW_COMMIT MATCHES "-dirty$")
      string(APPEND GW_COMMIT -dirty)
    endif()
  endif()
endif()
set(PROJECT_VERSION ${VERSION})
set(GW_GEMM ${GEMM})
configure_file(${CMAKE_CURRENT_LIST_DIR}/version.h.in ${OUT} @ONLY) # leaves an equal file alone
