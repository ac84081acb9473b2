/** The fabric: all that a schedule needs of the world, in one table of functions. Messages between
 *  the ranks of a lane, a clock, the core given away, and what ranks agree on while they lay
 *  schedules down. Where a schedule runs, comm/ calls neither MPI nor a clock by itself, so that
 *  another table can carry the same schedules: the unit tests have one whose ranks are threads.
 *
 *  A fabric is what one rank sees of one group of ranks, which share no tags with another group.
 *  Functions return GW_ERR_MPI, or what their table has in its place, if the world fails. */
#ifndef GW_COMM_FABRIC_FABRIC_H
#define GW_COMM_FABRIC_FABRIC_H

#include "base/probe.h"
#include "mpi/check.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct gw_fabric gw_fabric;

/** Messages under way, by number. */
typedef struct gw_posts gw_posts;

typedef struct gw_fabric_ops {
    /** Room for `n` messages under way, of any groups split off one another; free(). */
    gw_err (*room)(int n, gw_posts **out);
    /** Start message number `i`. `data` is the fabric's until a test or a wait says that it is
     *  complete: what is sent may only be read, what is received neither read nor written. Between
     *  two ranks, messages of one tag arrive in the order that they were sent in. *len: what came.
     */
    gw_err (*isend)(gw_fabric *f, gw_posts *p, int i, const void *data, size_t len, int peer,
                    int tag);
    gw_err (*irecv)(gw_fabric *f, gw_posts *p, int i, void *data, size_t cap, int peer, int tag,
                    size_t *len);
    /** Start whatever an MPI request stands for as message number `i`. NULL: this is not MPI. */
    gw_err (*call)(gw_posts *p, int i, gw_err (*issue)(void *ctx, MPI_Request *request), void *ctx);
    /** Are all of [first, first + n) complete? Then their lengths are there. n > 0. */
    gw_err (*test)(gw_fabric *f, gw_posts *p, int first, int n, bool *done);
    gw_err (*wait)(gw_fabric *f, gw_posts *p, int first, int n);
    /** Called before `who` tests its messages. True: nothing about them has changed since its last
     *  test, which found them incomplete, so it may skip this one. who NULL: the round of tests is
     *  over. A fabric that cannot tell has NULL here, and everybody tests. */
    bool (*quiet)(gw_fabric *f, const void *who);
    /** Has a message with this tag come that nobody receives yet? */
    gw_err (*called)(gw_fabric *f, int tag, bool *called);

    /** Nanoseconds from some moment on. */
    int64_t (*now_ns)(const gw_fabric *f);
    /** Give the core away to whoever else wants it, for `ns` nanoseconds if that is above 0. */
    void (*yield)(const gw_fabric *f, int64_t ns);
    /** Tell whoever listens. */
    void (*tell)(const gw_fabric *f, gw_exchange_event event, const gw_exchange *x);

    /** Collective, and blocking. agree: as gw_agree; sum: *x of all ranks. */
    gw_err (*agree)(gw_fabric *f, gw_err mine);
    gw_err (*sum)(gw_fabric *f, int *x);
    gw_err (*bcast)(gw_fabric *f, void *data, size_t bytes, int root);
    gw_err (*barrier)(gw_fabric *f);
    /** The ranks with the same `color` >= 0, in their order; *out is NULL where it is below 0. An
     *  error on all ranks or none. */
    gw_err (*split)(gw_fabric *f, int color, gw_fabric **out);
    void (*close)(gw_fabric *f);
} gw_fabric_ops;

/** The head of each table's own. */
struct gw_fabric {
    const gw_fabric_ops *ops;
    MPI_Comm comm; /* MPI_COMM_NULL: this is not MPI */
    int rank, size;
    int *world;   /* the ranks by their numbers in the whole world */
    int most_tag; /* tags are 0 .. most_tag */
    int *lanes;   /* how many this rank has opened, of all groups */
};

/** Collective over `parent`: the fabric of a duplicate of it. An error on all ranks or none. */
gw_err gw_fabric_mpi(gw_fabric **out, MPI_Comm parent);

#endif
