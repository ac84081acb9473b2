/** The fabric: all that a schedule needs from outside, in one table of functions: messages between
 *  the ranks of a lane, a clock, yielding the core, and agreement of ranks while they lay schedules
 *  down. Where a schedule runs, comm/ itself calls neither MPI nor a clock, so another table can
 *  carry the same schedules: the unit tests have one whose ranks are threads.
 *
 *  A fabric is one rank's view of one group of ranks, which shares no tags with another group.
 *  Functions return GW_ERR_MPI, or their table's equivalent, if the world fails. */
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
    /** Allocate room for `n` messages under way, of any groups split off one another; free(). */
    gw_err (*room)(int n, gw_posts **out);
    /** Start message number `i`. The fabric owns `data` until a test or a wait says that it is
     *  complete: only read what is sent, neither read nor write what is received. Between two
     *  ranks, messages of one tag arrive in the order in which they were sent. *len: bytes that
     *  came. */
    gw_err (*isend)(gw_fabric *f, gw_posts *p, int i, const void *data, size_t len, int peer,
                    int tag);
    gw_err (*irecv)(gw_fabric *f, gw_posts *p, int i, void *data, size_t cap, int peer, int tag,
                    size_t *len);
    /** Start, as message number `i`, any operation that has an MPI request. NULL: not MPI. */
    gw_err (*call)(gw_posts *p, int i, gw_err (*issue)(void *ctx, MPI_Request *request), void *ctx);
    /** Test whether all of [first, first + n) are complete. If so, their lengths are set. n > 0. */
    gw_err (*test)(gw_fabric *f, gw_posts *p, int first, int n, bool *done);
    gw_err (*wait)(gw_fabric *f, gw_posts *p, int first, int n);
    /** Called before `who` tests its messages. Return true if nothing about them has changed since
     *  its last test, which found them incomplete, so it may skip this one. who NULL: the round of
     *  tests is over. NULL, if the fabric cannot tell: everybody tests. */
    bool (*quiet)(gw_fabric *f, const void *who);
    /** Has a message with this tag come that nobody receives yet? */
    gw_err (*called)(gw_fabric *f, int tag, bool *called);

    /** Return the nanoseconds since some fixed moment. */
    int64_t (*now_ns)(const gw_fabric *f);
    /** Yield the core to whoever else wants it, for `ns` nanoseconds if that is above 0. */
    void (*yield)(const gw_fabric *f, int64_t ns);
    /** Report an event to whoever listens. */
    void (*tell)(const gw_fabric *f, gw_exchange_event event, const gw_exchange *x);

    /** Collective and blocking. agree: as gw_agree; sum: *x becomes the sum over all ranks. */
    gw_err (*agree)(gw_fabric *f, gw_err mine);
    gw_err (*sum)(gw_fabric *f, int *x);
    gw_err (*bcast)(gw_fabric *f, void *data, size_t bytes, int root);
    gw_err (*barrier)(gw_fabric *f);
    /** Make the group of the ranks with the same `color` >= 0, in their order; *out is NULL if it
     *  is below 0. An error occurs on all ranks or none. */
    gw_err (*split)(gw_fabric *f, int color, gw_fabric **out);
    void (*close)(gw_fabric *f);
} gw_fabric_ops;

/** The head of every fabric's own struct. */
struct gw_fabric {
    const gw_fabric_ops *ops;
    MPI_Comm comm; /* MPI_COMM_NULL: not MPI */
    int rank, size;
    int *world;   /* the ranks by their numbers in the whole world */
    int most_tag; /* tags are 0 .. most_tag */
    int *lanes;   /* how many this rank has opened, in all groups */
};

/** Make the fabric of a duplicate of `parent`: MPI's, or that of simulated ranks (gw_sim_comm). An
 *  error occurs on all ranks or none. Collective. */
gw_err gw_fabric_of(gw_fabric **out, MPI_Comm parent);

#endif
