# Every library gradwire stands on, each as an imported target.

# That of the first folder in PATH that has one; within a folder MPICH first, also where another MPI owns
# the plain mpicc. Any library of MPI 3.1 or later will do.
if(NOT MPI_C_COMPILER)
  find_program(GW_MPICC NAMES mpicc.mpich mpicc NAMES_PER_DIR)
  if(GW_MPICC)
    set(MPI_C_COMPILER ${GW_MPICC})
  endif()
endif()
if(NOT MPIEXEC_EXECUTABLE)
  get_filename_component(gw_beside "${MPI_C_COMPILER}" DIRECTORY) # a library's own, before those in PATH
  find_program(GW_MPIEXEC NAMES mpiexec.mpich mpiexec.hydra mpiexec NAMES_PER_DIR HINTS ${gw_beside})
  if(GW_MPIEXEC)
    set(MPIEXEC_EXECUTABLE ${GW_MPIEXEC})
  endif()
endif()
# CMake keeps the first library that it finds, whatever compiler is named later.
get_filename_component(gw_mpicc "${MPI_C_COMPILER}" REALPATH)
if(GW_MPI_OF AND NOT GW_MPI_OF STREQUAL gw_mpicc)
  message(FATAL_ERROR "${CMAKE_BINARY_DIR} was configured for the MPI library of ${GW_MPI_OF}: for that of "
    "${MPI_C_COMPILER} use another folder (cmake -B DIR), or remove CMakeCache.txt there")
endif()
if(GW_WHEEL)
  find_package(MPI COMPONENTS C)
  if(NOT MPI_C_FOUND)
    message(WARNING "no MPI library here: the Python package comes without libgradwire.so")
    return()
  endif()
endif()
find_package(MPI REQUIRED COMPONENTS C)
set(GW_MPI_OF "${gw_mpicc}" CACHE INTERNAL "the compiler whose MPI library was found")
if(MPI_C_VERSION VERSION_LESS 3.1)
  message(FATAL_ERROR "gradwire needs a library of MPI 3.1 or later; ${MPI_C_COMPILER} has MPI "
    "${MPI_C_VERSION}. Install MPICH (4.0 or later) or pass -DMPI_C_COMPILER=/path/to/its/mpicc")
endif()
# Some distributions' wrappers pass on how the library itself was compiled; link-time optimisation
# is ours to decide.
get_target_property(gw_mpi_options MPI::MPI_C INTERFACE_COMPILE_OPTIONS)
if(gw_mpi_options)
  list(FILTER gw_mpi_options EXCLUDE REGEX "-f(fat-)?lto")
  set_target_properties(MPI::MPI_C PROPERTIES INTERFACE_COMPILE_OPTIONS "${gw_mpi_options}")
endif()
# src/prof/pmpi*.c interpose MPI 4.0's calls: say here, not in a compiler's hundred lines, if a
# library claims the standard without them. One of each kind stands for the others. Of an older library
# they interpose what it has.
include(CheckCSourceCompiles)
set(CMAKE_REQUIRED_LIBRARIES MPI::MPI_C)
check_c_source_compiles([[
#include <mpi.h>
int main(int argc, char **argv) {
    (void)argv;
    return (argc > 1 && PMPI_Allreduce_c && PMPI_Bcast_init && PMPI_Alltoallw_init_c &&
        PMPI_Ireduce_scatter_block_c && PMPI_Neighbor_alltoallw_init_c && PMPI_Bsend_init_c &&
        PMPI_Isendrecv_replace_c && PMPI_Imrecv_c && PMPI_Buffer_detach_c);
}
]] GW_MPI_HAS_4_0_CALLS)
unset(CMAKE_REQUIRED_LIBRARIES)
if(NOT GW_MPI_HAS_4_0_CALLS AND NOT MPI_C_VERSION VERSION_LESS 4.0)
  message(FATAL_ERROR "${MPI_C_COMPILER} says MPI ${MPI_C_VERSION}, but lacks calls of MPI 4.0 or "
    "their PMPI_ names (see CMakeFiles/CMakeError.log or CMakeConfigureLog.yaml). Install MPICH (4.0 "
    "or later) or pass -DMPI_C_COMPILER=/path/to/its/mpicc")
endif()
include(GwLauncher)

find_package(OpenMP REQUIRED COMPONENTS C)
find_package(ZLIB REQUIRED)
find_package(Threads REQUIRED)

function(gw_find_library target header lib hint)
  find_path(${lib}_INCLUDE_DIR ${header})
  find_library(${lib}_LIBRARY ${lib})
  if(NOT ${lib}_INCLUDE_DIR OR NOT ${lib}_LIBRARY)
    message(FATAL_ERROR "${header} or lib${lib} not found: install ${hint}")
  endif()
  add_library(${target} INTERFACE IMPORTED GLOBAL)
  target_include_directories(${target} INTERFACE ${${lib}_INCLUDE_DIR})
  target_link_libraries(${target} INTERFACE ${${lib}_LIBRARY})
endfunction()

gw_find_library(GW::jansson jansson.h jansson "libjansson-dev")
if(GW_WHEEL)
  return()
endif()
find_package(PkgConfig REQUIRED)
gw_find_library(GW::papi papi.h papi "libpapi-dev")
# PAPI's software-defined events come with PAPI 7; without them gradwire's own counts are in its files
# only.
add_library(GW::sde INTERFACE IMPORTED GLOBAL)
find_path(sde_INCLUDE_DIR sde_lib.h)
find_library(sde_LIBRARY sde)
if(sde_INCLUDE_DIR AND sde_LIBRARY)
  target_include_directories(GW::sde INTERFACE ${sde_INCLUDE_DIR})
  target_link_libraries(GW::sde INTERFACE ${sde_LIBRARY})
  target_compile_definitions(GW::sde INTERFACE GW_HAVE_SDE)
endif()

if(NOT GW_GEMM MATCHES "^(auto|dnnl|cblas)$")
  message(FATAL_ERROR "GW_GEMM=${GW_GEMM}: must be auto, dnnl or cblas")
endif()
add_library(GW::gemm INTERFACE IMPORTED GLOBAL)
if(NOT GW_GEMM STREQUAL "cblas")
  gw_find_library(GW::dnnl dnnl.h dnnl "libdnnl-dev, or configure with -DGW_GEMM=cblas")
  target_link_libraries(GW::gemm INTERFACE GW::dnnl)
  target_compile_definitions(GW::gemm INTERFACE GW_HAVE_DNNL)
endif()
if(NOT GW_GEMM STREQUAL "dnnl")
  find_package(BLAS)
  find_path(CBLAS_INCLUDE_DIR NAMES cblas.h PATH_SUFFIXES openblas)
  if(NOT BLAS_FOUND OR NOT CBLAS_INCLUDE_DIR)
    message(FATAL_ERROR "CBLAS (library and cblas.h) not found: install libopenblas-dev, BLIS or "
      "MKL, or configure with -DGW_GEMM=dnnl")
  endif()
  target_include_directories(GW::gemm INTERFACE ${CBLAS_INCLUDE_DIR})
  target_link_libraries(GW::gemm INTERFACE ${BLAS_LIBRARIES})
  target_compile_definitions(GW::gemm INTERFACE GW_HAVE_CBLAS)
endif()
