# What `cmake --install` brings beside the program: its manual page, completion for the shell, the
# tools of analysis/ and experiments/, and the headers of plugins.

# Every file without a suffix in these folders is a tool: analysis/NAME becomes gradwire-NAME, beside
# the program, which runs it as `gradwire NAME`.
file(GLOB gw_tools CONFIGURE_DEPENDS LIST_DIRECTORIES OFF RELATIVE ${CMAKE_SOURCE_DIR}
  analysis/[!_.]* experiments/[!_.]*)
list(FILTER gw_tools EXCLUDE REGEX "\\.")

add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/gradwire.1
  COMMAND ${CMAKE_SOURCE_DIR}/cmake/manpage $<TARGET_FILE:gradwire> > ${CMAKE_BINARY_DIR}/gradwire.1
  DEPENDS gradwire cmake/manpage ${gw_tools} COMMENT "" VERBATIM)
add_custom_target(gw_manpage ALL DEPENDS ${CMAKE_BINARY_DIR}/gradwire.1)
install(FILES ${CMAKE_BINARY_DIR}/gradwire.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES cmake/completion.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
  RENAME gradwire)

# The tools lie in share/gradwire as in the source tree, the program they start where they look for it.
set(gw_share ${CMAKE_INSTALL_DATADIR}/gradwire)
install(DIRECTORY analysis experiments DESTINATION ${gw_share} USE_SOURCE_PERMISSIONS
  PATTERN results EXCLUDE PATTERN peers EXCLUDE PATTERN __pycache__ EXCLUDE PATTERN README.md EXCLUDE)
install(DIRECTORY profiles schedules DESTINATION ${gw_share} FILES_MATCHING PATTERN "*.json")
install(DIRECTORY examples DESTINATION ${gw_share} USE_SOURCE_PERMISSIONS)
install(DIRECTORY docs DESTINATION ${gw_share} FILES_MATCHING PATTERN "*.md") # Python's recipes, among others
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/links)
file(RELATIVE_PATH gw_program /${gw_share}/build/release /${CMAKE_INSTALL_BINDIR}/gradwire)
file(CREATE_LINK ${gw_program} ${CMAKE_BINARY_DIR}/links/gradwire SYMBOLIC)
install(FILES ${CMAKE_BINARY_DIR}/links/gradwire DESTINATION ${gw_share}/build/release)
if(GW_LAUNCH)
  install(PROGRAMS ${MPIEXEC_EXECUTABLE} DESTINATION ${gw_share}/build/release)
  if(EXISTS ${gw_pmix})
    install(PROGRAMS ${gw_pmix} DESTINATION ${gw_share}/build/release)
  endif()
endif()

foreach(tool IN LISTS gw_tools)
  get_filename_component(name ${tool} NAME)
  file(RELATIVE_PATH target /${CMAKE_INSTALL_BINDIR} /${gw_share}/${tool})
  file(CREATE_LINK ${target} ${CMAKE_BINARY_DIR}/links/gradwire-${name} SYMBOLIC)
  install(FILES ${CMAKE_BINARY_DIR}/links/gradwire-${name} DESTINATION ${CMAKE_INSTALL_BINDIR})
  file(CREATE_LINK ${CMAKE_SOURCE_DIR}/${tool} ${CMAKE_BINARY_DIR}/gradwire-${name} SYMBOLIC)
endforeach()

# The headers that a plugin may include, and for who builds one: find_package(gradwire) with the target
# gradwire::plugin, and pkg-config. Neither names the prefix, so that the installed tree may move.
foreach(file IN LISTS gw_plugin_headers)
  file(RELATIVE_PATH header ${CMAKE_SOURCE_DIR} ${file})
  string(REGEX REPLACE "^src/" "" header ${header})
  get_filename_component(room ${header} DIRECTORY)
  install(FILES ${file} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/gradwire/${room})
endforeach()
add_library(gw_plugin INTERFACE)
set_target_properties(gw_plugin PROPERTIES EXPORT_NAME plugin)
target_include_directories(gw_plugin INTERFACE
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/gradwire>)
# And for a program that uses the library: gradwire::gradwire.
set_target_properties(libgradwire PROPERTIES EXPORT_NAME gradwire)
install(TARGETS libgradwire EXPORT gradwire LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  PUBLIC_HEADER DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
set(gw_package ${CMAKE_INSTALL_DATADIR}/cmake/gradwire)
install(TARGETS gw_plugin EXPORT gradwire)
install(EXPORT gradwire NAMESPACE gradwire:: FILE gradwire-config.cmake DESTINATION ${gw_package})
include(CMakePackageConfigHelpers)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/gradwire-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/gradwire-config-version.cmake DESTINATION ${gw_package})
file(RELATIVE_PATH gw_include /${CMAKE_INSTALL_DATADIR}/pkgconfig /${CMAKE_INSTALL_INCLUDEDIR}/gradwire)
file(RELATIVE_PATH gw_header /${CMAKE_INSTALL_DATADIR}/pkgconfig /${CMAKE_INSTALL_INCLUDEDIR})
file(RELATIVE_PATH gw_lib /${CMAKE_INSTALL_DATADIR}/pkgconfig /${CMAKE_INSTALL_LIBDIR})
configure_file(cmake/gradwire.pc.in gradwire.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/gradwire.pc DESTINATION ${CMAKE_INSTALL_DATADIR}/pkgconfig)
