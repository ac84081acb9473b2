# libgradwire.so: include/gradwire.h over the objects of gw_core.

# What a header of plugins declares is exported, under a version of its own: the seams' abi numbers hold
# it. Words of these headers that are no symbols do no harm.
set(gw_seam)
foreach(header IN LISTS gw_plugin_headers)
  file(STRINGS ${header} lines REGEX "gw_")
  string(REGEX MATCHALL "gw_[a-z0-9_]+" words "${lines}")
  list(APPEND gw_seam ${words})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${header})
endforeach()
list(REMOVE_DUPLICATES gw_seam)
list(SORT gw_seam)
list(JOIN gw_seam "; " gw_seam)
set(gw_map ${CMAKE_BINARY_DIR}/generated/gradwire.map)
file(CONFIGURE OUTPUT ${gw_map} CONTENT
  "GRADWIRE_1 { global: gradwire_*; local: *; };\nGRADWIRE_PLUGIN_1 { global: @gw_seam@; };\n" @ONLY)

add_library(gw_core OBJECT ${gw_core_sources})
add_dependencies(gw_core gw_version)
set_target_properties(gw_core PROPERTIES POSITION_INDEPENDENT_CODE ON)
target_compile_definitions(gw_core PUBLIC _GNU_SOURCE)
target_include_directories(gw_core PUBLIC include src . ${CMAKE_BINARY_DIR}/generated)
target_compile_options(gw_core PRIVATE -Wall -Wextra -Wshadow -Wstrict-prototypes -Wvla
  -Wno-unknown-pragmas -fno-math-errno -fno-trapping-math -ffp-contract=off -fno-semantic-interposition)
target_link_libraries(gw_core PUBLIC MPI::MPI_C OpenMP::OpenMP_C ZLIB::ZLIB Threads::Threads GW::jansson m ${CMAKE_DL_LIBS})
if(GW_SANITIZE)
  target_compile_options(gw_core PUBLIC -fsanitize=${GW_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all)
  target_compile_definitions(gw_core PUBLIC GW_NO_CLONES)
  target_link_options(gw_core PUBLIC -fsanitize=${GW_SANITIZE})
endif()

# Its own calls of MPI go through src/prof/pmpi*.c, the host's do not: hence -Bsymbolic, and the map. It
# stays loaded, for exit() calls back into it.
add_library(libgradwire SHARED)
set_target_properties(libgradwire PROPERTIES OUTPUT_NAME gradwire VERSION ${PROJECT_VERSION} SOVERSION 0
  LINK_DEPENDS ${gw_map} PUBLIC_HEADER ${CMAKE_SOURCE_DIR}/include/gradwire.h)
target_link_libraries(libgradwire PRIVATE gw_core)
target_link_options(libgradwire PRIVATE -Wl,-Bsymbolic -Wl,-z,nodelete -Wl,--version-script=${gw_map})
target_include_directories(libgradwire INTERFACE
  $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)

# In a wheel there are no links, and the library has the name by which the loader knows it. It finds the MPI
# library that it was built with, wherever that is.
if(GW_WHEEL)
  set_target_properties(libgradwire PROPERTIES VERSION 0 INSTALL_RPATH_USE_LINK_PATH ON)
  install(TARGETS libgradwire LIBRARY DESTINATION gradwire NAMELINK_SKIP)
  if(GW_LAUNCH)
    install(PROGRAMS ${MPIEXEC_EXECUTABLE} DESTINATION gradwire)
    install(PROGRAMS ${gw_pmix} DESTINATION gradwire OPTIONAL)
  endif()
endif()
