#include "mpi/agree.h"

#include "base/text.h"
#include "mpi/wait.h"

gw_err gw_agree(MPI_Comm comm, gw_err mine) {
    struct {
        int err, rank;
    } in, worst;
    if (gw_err_alone(mine))
        return mine;
    GW_TRY(gw_comm_place(comm, &in.rank, NULL));
    in.err = mine != GW_OK; /* a failure wins; ties go to the lowest rank */
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
