#include "base/agree.h"

#include "base/text.h"
#include "base/wait.h"

#include <stdio.h>

gw_err gw_mpi_check(int rc, const char *call) {
    if (__builtin_expect(rc == MPI_SUCCESS, 1))
        return GW_OK;
    char text[MPI_MAX_ERROR_STRING];
    int len = 0;
    if (MPI_Error_string(rc, text, &len) != MPI_SUCCESS)
        snprintf(text, sizeof text, "error %d", rc);
    /* MPI's text may hold line breaks; an error is one line. */
    for (char *c = text; *c; c++)
        if (*c == '\n')
            *c = ' ';
    return gw_fail(GW_ERR_MPI, "%.*s failed: %s", 60, call, text);
}

gw_err gw_agree(MPI_Comm comm, gw_err mine) {
    struct {
        int err, rank;
    } in, worst;
    if (gw_err_alone(mine))
        return mine;
    GW_MPI(MPI_Comm_rank(comm, &in.rank));
    in.err = mine != GW_OK; /* any failure outranks none; ties go to the lowest rank */
    in.err = -in.err;
    GW_TRY(gw_allreduce(&in, &worst, 1, MPI_2INT, MPI_MINLOC, comm));
    if (worst.err == 0)
        return GW_OK;
    struct {
        int err;
        char text[1020];
    } word = {0};
    if (in.rank == worst.rank) {
        word.err = mine;
        gw_text_print(word.text, sizeof word.text, "%s", gw_err_text());
    }
    GW_TRY(gw_bcast(&word, (int)sizeof word, MPI_BYTE, worst.rank, comm));
    return gw_fail((gw_err)word.err, "%s", word.text);
}
