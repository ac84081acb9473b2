#include "watch/vote.h"

#include "mpi/wait.h"

gw_err gw_vote_open(gw_vote *v, MPI_Comm comm, int64_t step, double now_s) {
    *v = (gw_vote){.comm = comm, .next = step + 1, .last = step, .last_s = now_s};
    if (gw_team_of(comm)) /* ranks of one process get a signal together, and it ends them */
        v->next = INT64_MAX;
    return gw_comm_place(comm, &v->rank, NULL);
}

/* At most doubled, so that one short step among long ones does not put the vote off for long. */
static int64_t vote_interval(const gw_vote *v, double now_s) {
    int64_t steps = v->next - v->last, most = 2 * steps;
    double took_s = now_s - v->last_s, wanted = (double)steps * GW_VOTE_S;
    if (took_s * (double)most <= wanted) /* a clock that stood still, too */
        return most;
    return wanted > took_s ? (int64_t)(wanted / took_s) : 1;
}

gw_err gw_vote_begin(gw_vote *v, double now_s, const gw_ballot *ballot) {
    int count = (int)(sizeof v->all / sizeof(int64_t));
    v->all.ballot = *ballot;
    v->all.interval = v->rank == 0 ? vote_interval(v, now_s) : 0;
    GW_TRY(gw_allreduce_begin(MPI_IN_PLACE, &v->all, count, MPI_INT64_T, MPI_MAX, v->comm,
                              &v->request));
    v->last = v->next;
    v->last_s = now_s;
    v->open = true;
    return GW_OK;
}

gw_err gw_vote_end(gw_vote *v, gw_ballot *ballot) {
    GW_TRY(gw_wait(&v->request));
    *ballot = v->all.ballot;
    v->next = v->last + v->all.interval;
    v->open = false;
    return GW_OK;
}
