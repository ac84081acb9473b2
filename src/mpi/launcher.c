#include "mpi/launcher.h"

#include <stdlib.h>
#include <string.h>

#ifdef OPEN_MPI
#define LAUNCHER "mpirun"
#else
#define LAUNCHER "mpiexec.hydra"
#endif

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
                   "MPI's launcher (" LAUNCHER " -n N ..; under Slurm srun --mpi=pmi2 or pmix), or "
                   "unset %s if each is to run alone",
                   name, getenv(name), strcmp(name, "WORLD_SIZE") == 0 ? "torchrun" : "a launcher",
                   name);
}
