#include "prof/ranks.h"

#include "base/json.h"
#include "base/mem.h"
#include "mpi/wait.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double noticeable = 0.05;

gw_err gw_ranks_collect(gw_rank_figures **out, uint64_t *dropped, const gw_record *r,
                        const gw_waits *w, int64_t steps, int64_t before, MPI_Comm comm) {
    int rank, ranks;
    bool warm = steps > 2 * GW_RECORD_WARMUP;
    int64_t cold = warm ? GW_RECORD_WARMUP : 0, counted = steps - (before > cold ? before : cold);
    gw_record_rank *step = NULL;
    gw_waits_rank *late = NULL;
    *dropped = 0;
    GW_TRY(gw_comm_place(comm, &rank, &ranks));
    gw_err e = rank == 0 ? gw_alloc(out, (size_t)ranks, sizeof **out) : GW_OK;
    GW_THEN(e, gw_alloc(&step, (size_t)ranks, sizeof *step));
    GW_THEN(e, gw_alloc(&late, (size_t)ranks, sizeof *late));
    e = gw_agree(comm, e);
    if (e == GW_OK && w)
        e = gw_waits_totals(w, warm, late, dropped);
    if (e == GW_OK && rank == 0)
        gw_record_ranks(r, warm, step);
    for (int i = 0; e == GW_OK && rank == 0 && i < ranks; i++) {
        bool known = w && counted > 0;
        (*out)[i] =
            (gw_rank_figures){.step = step[i],
                              .last_share = known ? late[i].last : NAN,
                              .waited_for_s = known ? late[i].caused_s / (double)counted : NAN};
    }
    free(step);
    free(late);
    return e;
}

typedef struct told {
    gw_resident memory;
    int node; /* the first rank of the node, which has one copy of what its ranks share */
} told;

gw_err gw_ranks_memory(gw_rank_figures *all, gw_resident *mine, MPI_Comm comm) {
    int rank, ranks;
    told own = {.memory = *mine}, *found = NULL;
    MPI_Comm node = MPI_COMM_NULL;
    GW_TRY(gw_comm_place(comm, &rank, &ranks));
    own.node = rank;
    gw_err e = gw_comm_split_host(comm, &node);
    GW_THEN(e, gw_bcast(&own.node, 1, MPI_INT, 0, node));
    gw_comm_free(&node);
    if (e == GW_OK && rank == 0)
        e = gw_alloc(&found, (size_t)ranks, sizeof *found);
    e = gw_agree(comm, e);
    GW_THEN(e, gw_gather(&own, found, (int)sizeof own, comm));
    for (int i = 0; e == GW_OK && rank == 0 && i < ranks; i++) {
        memcpy(all[i].memory, found[i].memory.most, sizeof all[i].memory);
        all[i].node = found[i].node;
        if (!*mine->why)
            memcpy(mine->why, found[i].memory.why, sizeof mine->why);
    }
    free(found);
    return e;
}

/* A sum over a node's ranks of what is theirs alone, and the largest of what they share. */
static double ranks_memory_of(const gw_rank_figures *all, int n, int node, int phase) {
    double own = 0, shared = 0;
    for (int i = 0; i < n; i++) {
        gw_resident_bytes b = all[i].memory[phase];
        if (all[i].node != node)
            continue;
        own += b.peak - b.shared;
        shared = b.shared > shared ? b.shared : shared;
    }
    return own + shared;
}

static json_t *ranks_bytes(double bytes) {
    return isnan(bytes) ? json_null() : json_integer((json_int_t)bytes);
}

void gw_ranks_memory_json(const gw_rank_figures *all, int n, json_t **largest, json_t **sum) {
    *largest = json_object();
    *sum = json_object();
    for (int phase = 0; phase < GW_RESIDENT_PHASES; phase++) {
        double most = 0, over = 0;
        for (int i = 0; i < n && !isnan(most); i++) /* one that is not known makes it so */
            most = all[i].memory[phase].peak <= most ? most : all[i].memory[phase].peak;
        for (int i = 0; i < n; i++)
            if (all[i].node == i)
                over += ranks_memory_of(all, n, i, phase);
        json_object_set_new(*largest, gw_resident_names[phase], ranks_bytes(most));
        json_object_set_new(*sum, gw_resident_names[phase], ranks_bytes(over));
    }
}

static json_t *ranks_memory_one(const gw_resident_bytes *b, bool shared) {
    json_t *all = json_object();
    for (int phase = 0; phase < GW_RESIDENT_PHASES; phase++)
        json_object_set_new(all, gw_resident_names[phase],
                            ranks_bytes(shared ? b[phase].shared : b[phase].peak));
    return all;
}

gw_straggler gw_ranks_straggler(const gw_rank_figures *all, int n) {
    gw_straggler none = {.rank = -1}, worst = none;
    double waiting_s = 0, walls_s = 0;
    for (int i = 0; i < n; i++) {
        waiting_s += all[i].waited_for_s;
        walls_s += all[i].step.wall_s;
        if (n > 1 && (worst.rank < 0 || all[i].waited_for_s > all[worst.rank].waited_for_s))
            worst.rank = i;
    }
    if (worst.rank < 0)
        return none;
    const gw_rank_figures *f = &all[worst.rank];
    worst.last_share = f->last_share;
    worst.of_waiting = f->waited_for_s / waiting_s;
    worst.waited_s = f->waited_for_s / (n - 1);
    /* The waiting ranks' steps count: a rank that is late between its steps has short ones. */
    worst.of_step = f->waited_for_s / (walls_s - f->step.wall_s);
    return worst.of_step >= noticeable ? worst : none; /* NaN: none */
}

json_t *gw_ranks_json(const gw_rank_figures *all, int n) {
    json_t *list = json_array();
    for (int i = 0; i < n; i++) {
        const gw_record_rank *s = &all[i].step;
        json_array_append_new(list, gw_json_object("rank:i wall_s:f compute_s:f waiting_s:f "
                                                   "transfer_s:f own_s:f last_share:f "
                                                   "waited_for_s:f peak_bytes:o "
                                                   "shared_bytes:o",
                                                   i, s->wall_s, s->compute_s, s->waiting_s,
                                                   s->transfer_s, s->own_s, all[i].last_share,
                                                   all[i].waited_for_s,
                                                   ranks_memory_one(all[i].memory, false),
                                                   ranks_memory_one(all[i].memory, true)));
    }
    return list;
}
