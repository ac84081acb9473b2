#include "mpi/launcher.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

const char *gw_launcher_right(void) {
#if defined(OPEN_MPI)
    return "mpirun -n N; under Slurm srun --mpi=pmix";
#elif defined(I_MPI_VERSION)
    return "mpiexec.hydra -n N; under Slurm srun --mpi=pmi2 or pmix";
#else
    /* MPICH's configuration says whether it was built for PMIx. */
    static char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int len = 0;
    bool pmix = MPI_Get_library_version(text, &len) == MPI_SUCCESS && strstr(text, "pmix");
    return pmix ? "mpiexec of Open MPI -n N; under Slurm srun --mpi=pmix"
                : "mpiexec.hydra -n N; under Slurm srun --mpi=pmi2";
#endif
}

const char *gw_launcher_other(void) {
    int ranks = 0;
    if (MPI_Comm_size(MPI_COMM_WORLD, &ranks) != MPI_SUCCESS || ranks != 1)
        return NULL;
#ifdef OPEN_MPI
    return getenv("PMI_RANK") && !getenv("OMPI_COMM_WORLD_RANK") && !getenv("SLURM_STEP_ID")
               ? "MPICH"
               : NULL;
#else
    return getenv("OMPI_COMM_WORLD_RANK") && !strstr(gw_launcher_right(), "Open MPI") ? "Open MPI"
                                                                                      : NULL;
#endif
}

const char *gw_launcher_foreign(void) {
    /* Of MPICH and its kin, Open MPI, MVAPICH, Slurm's steps (an allocation alone sets no such
     * one), torchrun; and what PMIx sets says no number. */
    static const char *const told[] = {"PMI_SIZE",
                                       "OMPI_COMM_WORLD_SIZE",
                                       "MV2_COMM_WORLD_SIZE",
                                       "SLURM_STEP_NUM_TASKS",
                                       "WORLD_SIZE",
                                       "PMIX_RANK"};
    int ranks = 0;
    if (MPI_Comm_size(MPI_COMM_WORLD, &ranks) != MPI_SUCCESS || ranks != 1)
        return NULL;
    for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
        const char *text = getenv(told[i]);
        if (text && atoi(text) > (strcmp(told[i], "PMIX_RANK") != 0))
            return told[i];
    }
    return NULL;
}

gw_err gw_launcher_check(void) {
    const char *name = gw_launcher_foreign();
    if (!name)
        return GW_OK;
    return gw_fail(GW_ERR_USAGE,
                   "MPI has 1 rank, but %s=%s says that %s started several: start them by this "
                   "MPI's launcher (%s), or unset %s if each is to run alone",
                   name, getenv(name), strcmp(name, "WORLD_SIZE") == 0 ? "torchrun" : "a launcher",
                   gw_launcher_right(), name);
}
