# The .def file is the one list of a registry's members: C takes the table from it, CMake the
# sources and the tests.

# gw_registry_names(VAR DEF): the name of each X(name) in DEF.
function(gw_registry_names var def)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${def})
  file(STRINGS ${def} lines REGEX "^X\\(")
  set(names)
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "^X\\(([A-Za-z0-9_]+)\\).*$" "\\1" name "${line}")
    list(APPEND names ${name})
  endforeach()
  set(${var} ${names} PARENT_SCOPE)
endfunction()

# gw_registry_sources(VAR DIR DEF): for each X(name) in DIR/DEF append DIR/name.c to VAR; DEF may
# lie above DIR.
function(gw_registry_sources var dir def)
  set(file ${CMAKE_SOURCE_DIR}/${dir}/${def})
  if(NOT EXISTS ${file})
    return()
  endif()
  gw_registry_names(names ${file})
  set(list ${${var}})
  foreach(name IN LISTS names)
    list(APPEND list ${dir}/${name}.c)
  endforeach()
  set(${var} ${list} PARENT_SCOPE)
endfunction()
