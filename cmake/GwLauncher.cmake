# The launcher that fits the MPI library: BUILD/mpiexec, a script, and MPIEXEC_EXECUTABLE names it.
# A launcher that does not speak the library's dialect of PMI starts N programs that each believe
# to be alone. That happens when mpiexec is another MPI's, and with the MPICH of Ubuntu 24.04,
# which was built for PMIx although its own mpiexec is not (Launchpad bug 2072338); Open MPI's
# mpiexec speaks PMIx and does launch it. So each candidate has to start two ranks that see each
# other before it is taken.
file(WRITE ${CMAKE_BINARY_DIR}/CMakeFiles/gw_launch.c [[
#include <mpi.h>
int main(int argc, char **argv) {
    int size = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Finalize();
    return size == 2 ? 0 : 3;
}
]])

# MPI_Init of MPICH 4.2.0 asks for two keys that MPICH's own launcher alone may have, and OpenPMIx
# waits 2 s for each, in case a rank still provides it (later versions of MPICH ask it not to). This
# library, loaded into each rank, answers at once (-46 is PMIX_ERR_NOT_FOUND).
# Loaded into the launcher, too, it keeps Open MPI from giving rank 0 a terminal for its output where
# the launcher itself writes to a file or a pipe: rank 0 would write what is meant for terminals.
file(WRITE ${CMAKE_BINARY_DIR}/CMakeFiles/gw_pmix.c [[
#include <dlfcn.h>
#include <errno.h>
#include <pty.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>
typedef int get_fn(const void *, const char *, const void *, size_t, void *);
get_fn PMIx_Get;
int PMIx_Get(const void *proc, const char *key, const void *info, size_t infos, void *value) {
    if (key && !strncmp(key, "PMI_", 4))
        return -46;
    get_fn *next = (get_fn *)dlsym(RTLD_NEXT, "PMIx_Get");
    void *own = next ? NULL : dlopen("libpmix.so.2", RTLD_LAZY | RTLD_NOLOAD); /* Python's is local */
    if (own)
        next = (get_fn *)dlsym(own, "PMIx_Get");
    return next ? next(proc, key, info, infos, value) : -46;
}
typedef int pty_fn(int *, int *, char *, const struct termios *, const struct winsize *);
pty_fn openpty;
int openpty(int *master, int *slave, char *name, const struct termios *t,
            const struct winsize *size) {
    if (!isatty(STDOUT_FILENO)) { /* Open MPI then takes a pipe */
        errno = ENOTTY;
        return -1;
    }
    pty_fn *next = (pty_fn *)dlsym(RTLD_NEXT, "openpty");
    return next(master, slave, name, t, size);
}
]])
set(gw_pmix ${CMAKE_BINARY_DIR}/mpiexec.so)

# Open MPI's launcher does as Hydra does: it starts more ranks than there are cores, binds none, starts
# them for root, too, and leaves an exit status to those who ask. Defaults by environment, for they give way
# to a user's options: the names of 4.x, then of 5.x.
set(gw_openmpi_words OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
  OMPI_MCA_orte_execute_quiet=1
  PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe PRTE_MCA_hwloc_default_binding_policy=none)

function(gw_find_launcher)
  set(probe ${CMAKE_BINARY_DIR}/CMakeFiles/gw_launch)
  try_compile(built ${CMAKE_BINARY_DIR}/CMakeFiles/gw_launch.dir ${probe}.c
    LINK_LIBRARIES MPI::MPI_C COPY_FILE ${probe})
  if(NOT built)
    message(FATAL_ERROR "a program that includes mpi.h cannot be built with ${MPI_C_COMPILER}")
  endif()
  find_program(GW_MPIEXEC_PMIX NAMES mpiexec.openmpi prterun)
  mark_as_advanced(GW_MPIEXEC_PMIX)
  set(own ${MPIEXEC_EXECUTABLE} ${MPIEXEC_PREFLAGS})
  set(pmix ${GW_MPIEXEC_PMIX})
  file(REMOVE ${gw_pmix})
  foreach(candidate own pmix)
    list(GET ${candidate} 0 program)
    if(NOT program)
      continue()
    endif()
    execute_process(COMMAND ${program} --version OUTPUT_VARIABLE about ERROR_QUIET TIMEOUT 60)
    set(with "")
    if(candidate STREQUAL "pmix" OR about MATCHES "Open MPI|OpenRTE")
      set(with ${gw_openmpi_words})
    endif()
    execute_process(COMMAND ${CMAKE_COMMAND} -E env ${with} ${${candidate}} ${MPIEXEC_NUMPROC_FLAG} 2
      ${probe} RESULT_VARIABLE status OUTPUT_QUIET ERROR_QUIET TIMEOUT 60)
    if(status EQUAL 0)
      string(REPLACE ";" " " command "${${candidate}}")
      message(STATUS "MPI launcher: ${command}")
      set(GW_LAUNCH "${command}" CACHE INTERNAL "command that starts MPI programs")
      set(GW_LAUNCH_WITH "${with}" CACHE INTERNAL "the environment that it gets")
      # Not with a sanitizer, whose runtime must be loaded before all others: it waits, as before.
      if(with AND NOT GW_SANITIZE)
        execute_process(COMMAND ${CMAKE_C_COMPILER} -shared -fPIC -O2 -D_GNU_SOURCE
          ${CMAKE_BINARY_DIR}/CMakeFiles/gw_pmix.c -o ${gw_pmix} -ldl OUTPUT_QUIET ERROR_QUIET)
      endif()
      return()
    endif()
  endforeach()
  message(WARNING "no launcher starts 2 ranks that see each other (tried ${MPIEXEC_EXECUTABLE}): "
    "the program will build, its tests on several ranks will fail. Pass "
    "-DMPIEXEC_EXECUTABLE=/path/to/mpiexec of ${MPI_C_COMPILER}; on Ubuntu 24.04 install "
    "openmpi-bin")
endfunction()

# The search takes seconds: its result is kept as long as what it was found for stays the same.
set(gw_launch_key
  "${MPIEXEC_EXECUTABLE};${MPIEXEC_PREFLAGS};${MPI_C_COMPILER};${MPI_C_LIBRARIES};${GW_SANITIZE}")
if(NOT GW_LAUNCH OR NOT GW_LAUNCH_KEY STREQUAL gw_launch_key)
  unset(GW_LAUNCH CACHE)
  gw_find_launcher()
  set(GW_LAUNCH_KEY "${gw_launch_key}" CACHE INTERNAL "what GW_LAUNCH was found for")
endif()
if(GW_LAUNCH)
  set(MPIEXEC_EXECUTABLE ${CMAKE_BINARY_DIR}/mpiexec)
  set(gw_preload "")
  if(EXISTS ${gw_pmix})
    # LD_PRELOAD cannot hold a path with a blank or a colon.
    set(gw_preload [[
pmix=$(dirname "$(realpath "$0")")/mpiexec.so
case $pmix in
*[:\ ]*) ;;
*) export LD_PRELOAD="$pmix${LD_PRELOAD:+:$LD_PRELOAD}" ;;
esac
]])
  endif()
  foreach(word IN LISTS GW_LAUNCH_WITH)
    string(REGEX REPLACE "^([^=]+)=(.*)$" "export \\1=\"\${\\1-\\2}\"\n" word "${word}")
    string(APPEND gw_preload "${word}")
  endforeach()
  file(WRITE ${MPIEXEC_EXECUTABLE} "#!/bin/sh\n${gw_preload}exec ${GW_LAUNCH} \"$@\"\n")
  file(CHMOD ${MPIEXEC_EXECUTABLE} PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE
    GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
endif()
