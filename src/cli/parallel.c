/* A command on all ranks: MPI started, and errors told once. */
#include "cli/cli.h"

#include "mpi/agree.h"
#include "mpi/alike.h"
#include "mpi/launcher.h"
#include "mpi/world.h"
#include "prof/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int gw_cli_fail(gw_err e) {
    fprintf(stderr, "gradwire: %s\n", gw_err_text());
    return gw_err_status(e);
}

gw_err gw_cli_alike(const gw_cli_told *told, MPI_Comm comm) {
    gw_alike alike;
    char command[64];
    snprintf(command, sizeof command, "%s%s%s", told->command, told->part ? " " : "",
             told->part ? told->part : "");
    gw_alike_begin(&alike, command);
    gw_alike_options(&alike, told->args);
    if (told->file)
        gw_alike_file(&alike, NULL, told->file);
    return gw_alike_compare(&alike, told->command, comm);
}

gw_err gw_cli_begin(const gw_cli_told *told, int level, gw_err parsed) {
    int provided = 0;
    gw_err e = parsed;
    gw_clock_begin();
    if (MPI_Init_thread(NULL, NULL, level, &provided) != MPI_SUCCESS)
        return gw_fail(GW_ERR_MPI, "MPI_Init_thread failed");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    GW_THEN(e, gw_launcher_check());
    if (e == GW_OK && provided < level)
        e = gw_fail(GW_ERR_UNSUPPORTED,
                    "this MPI library provides thread level %d of the %d that the strategy needs: "
                    "use another progress= or another library",
                    provided, level);
    e = gw_agree(MPI_COMM_WORLD, e);
    GW_THEN(e, gw_cli_alike(told, MPI_COMM_WORLD));
    return e;
}

int gw_cli_end(gw_err e, bool own) {
    int rank = 0, up = 0;
    MPI_Initialized(&up);
    if (!up)
        return gw_cli_fail(e);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (own || gw_err_alone(e)) {
        fprintf(stderr, "gradwire: rank %d: %s\n", rank, gw_err_text());
        /* A launcher that hears of the abort ends the job at once, and with it what it has not read
         * of this line. */
        nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
        MPI_Abort(MPI_COMM_WORLD, 1);
        exit(1); /* MPICH under PMIx returns from it, and would wait for the others below */
    }
    int status = gw_err_status(e);
    if (e != GW_OK && rank == 0)
        gw_cli_fail(e);
    gw_world_part(MPI_COMM_WORLD);
    MPI_Finalize();
    return status;
}

int gw_cli_parallel(const gw_cli_told *told, int level, gw_err parsed,
                    gw_err (*body)(void *ctx, MPI_Comm comm, bool *own), void *ctx) {
    bool own = false;
    gw_err e = gw_cli_begin(told, level, parsed);
    GW_THEN(e, body(ctx, MPI_COMM_WORLD, &own));
    return gw_cli_end(e, own);
}

int gw_cli_refuse(gw_err e) {
    return gw_cli_end(gw_cli_begin(NULL, MPI_THREAD_FUNNELED, e), false);
}
