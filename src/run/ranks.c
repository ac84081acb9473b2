#include "run/ranks.h"

#include "base/json.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

static const double noticeable = 0.05, mostly = 0.5;

gw_err gw_ranks_collect(gw_rank_figures **out, uint64_t *dropped, const gw_record *r,
                        const gw_waits *w, int64_t steps, int64_t before, MPI_Comm comm) {
    int rank, ranks;
    int64_t counted = steps - (before > GW_RECORD_WARMUP ? before : GW_RECORD_WARMUP);
    gw_record_rank *step = NULL;
    gw_waits_rank *late = NULL;
    *dropped = 0;
    GW_MPI(MPI_Comm_rank(comm, &rank));
    GW_MPI(MPI_Comm_size(comm, &ranks));
    gw_err e = rank == 0 ? gw_alloc(out, (size_t)ranks, sizeof **out) : GW_OK;
    GW_THEN(e, gw_alloc(&step, (size_t)ranks, sizeof *step));
    GW_THEN(e, gw_alloc(&late, (size_t)ranks, sizeof *late));
    e = gw_agree(comm, e);
    if (e == GW_OK && w)
        e = gw_waits_totals(w, late, dropped);
    if (e == GW_OK && rank == 0)
        gw_record_ranks(r, steps > 2 * GW_RECORD_WARMUP, step);
    for (int i = 0; e == GW_OK && rank == 0 && i < ranks; i++) {
        bool known = w && counted > 0;
        (*out)[i] = (gw_rank_figures){step[i], known ? late[i].last : NAN,
                                      known ? late[i].caused_s / (double)counted : NAN};
    }
    free(step);
    free(late);
    return e;
}

gw_straggler gw_ranks_straggler(const gw_rank_figures *all, int n) {
    gw_straggler none = {.rank = -1}, worst = none;
    for (int i = 0; i < n; i++)
        if (n > 1 && (worst.rank < 0 || all[i].waited_for_s > all[worst.rank].waited_for_s))
            worst.rank = i;
    if (worst.rank < 0)
        return none;
    const gw_rank_figures *f = &all[worst.rank];
    worst.last_share = f->last_share;
    worst.waited_s = f->waited_for_s / (n - 1);
    worst.of_step = worst.waited_s / f->step.wall_s;
    bool named = worst.last_share >= mostly && worst.of_step >= noticeable; /* NaN: no */
    return named ? worst : none;
}

json_t *gw_ranks_json(const gw_rank_figures *all, int n) {
    json_t *list = json_array();
    for (int i = 0; i < n; i++) {
        const gw_record_rank *s = &all[i].step;
        json_array_append_new(list, gw_json_object("rank:i wall_s:f compute_s:f waiting_s:f "
                                                   "transfer_s:f own_s:f last_share:f "
                                                   "waited_for_s:f",
                                                   i, s->wall_s, s->compute_s, s->waiting_s,
                                                   s->transfer_s, s->own_s, all[i].last_share,
                                                   all[i].waited_for_s));
    }
    return list;
}
