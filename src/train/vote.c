#include "train/vote.h"

#include "base/wait.h"

gw_err gw_vote_open(gw_vote *v, MPI_Comm comm, int64_t step, double now_s) {
    *v = (gw_vote){.comm = comm, .next = step + 1, .last = step, .last_s = now_s};
    GW_MPI(MPI_Comm_rank(comm, &v->rank));
    return GW_OK;
}

/* At most doubled, so that one short step among long ones does not put the vote off for long. */
static int64_t interval(const gw_vote *v, double now_s) {
    int64_t steps = v->next - v->last, most = 2 * steps;
    double took_s = now_s - v->last_s, wanted = (double)steps * GW_VOTE_S;
    if (took_s * (double)most <= wanted) /* a clock that stood still, too */
        return most;
    return wanted > took_s ? (int64_t)(wanted / took_s) : 1;
}

gw_err gw_vote_hold(gw_vote *v, double now_s, gw_ballot *ballot) {
    struct {
        gw_ballot ballot;
        int64_t interval;
    } all = {*ballot, v->rank == 0 ? interval(v, now_s) : 0};
    int count = (int)(sizeof all / sizeof(int64_t));
    GW_TRY(gw_allreduce(MPI_IN_PLACE, &all, count, MPI_INT64_T, MPI_MAX, v->comm));
    *ballot = all.ballot;
    v->last = v->next;
    v->last_s = now_s;
    v->next += all.interval;
    return GW_OK;
}
