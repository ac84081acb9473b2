/** Which library computes which product of a run's model, and how large the pieces are between two
 *  polls: measured once per machine, kept in a cache, decided by rank 0 for all. The rules are in
 *  docs/measurement.md. */
#ifndef GW_MACHINE_PRODUCTS_H
#define GW_MACHINE_PRODUCTS_H

#include "machine/twins.h"
#include "nn/model.h"

#include <jansson.h>
#include <mpi.h>

struct gw_pace;

typedef enum gw_products_source {
    GW_PRODUCTS_UNTIMED, /* no product is long enough, or there is nothing to choose */
    GW_PRODUCTS_MEASURED,
    GW_PRODUCTS_CACHED, /* all of them */
    GW_PRODUCTS_RESUMED /* as in the checkpoint that the run resumed from */
} gw_products_source;

/** What bounds a piece: what the wire drains from its buffer while nobody polls. */
typedef struct gw_wire {
    double buffer_bytes; /* payload */
    double rate_bits_per_s;
    bool rate_known; /* else it is assumed */
} gw_wire;

/** Seconds of a product whole and in pieces, by way; NaN: not timed. */
typedef struct gw_products_time {
    double whole[GW_GEMM_WAYS], pieced[GW_GEMM_WAYS];
} gw_products_time;

/** Plain data. */
typedef struct gw_products {
    gw_gemm_plan plan; /* of which piece is INFINITY where nobody polls */
    gw_products_time time[GW_GEMM_CHOICES];
    gw_products_source source;
    int threads;
    bool polls;
    gw_wire wire;
    double flops_per_s; /* of the whole products together, each the fastest way; NaN: not timed */
    double piece_s;     /* that a piece should take; NaN: products are whole */
    double took_s;
    char note[256]; /* why nothing could be kept; "": nothing to say */
} gw_products;

typedef struct gw_products_setup {
    MPI_Comm comm;
    gw_load load; /* this rank's */
    int threads;
    bool polls;
    double rate_bits_per_s; /* of a simulated link; 0: that of this host */
    bool adds;              /* gradients may be added to what is there (gw_residuals_add) */
    const json_t *then;     /* gw_products_json of the run that is resumed; NULL: none */
} gw_products_setup;

/** Collective: decide for the products of all ranks, and let gw_gemm compute by it from now on.
 *  Rank 0 looks into the cache, or measures while the others sleep. A cache that cannot be used is
 *  noted. */
gw_err gw_products_open(gw_products *p, const gw_products_setup *setup);

/** Seconds of the longest piece, which may take longer than was wanted of it (gw_gemm_pieces): a
 * rank polls no more often. 0: it does not poll between products' pieces. */
double gw_products_gap_s(const gw_products *p);

/** For run.json and checkpoints. NULL without memory. */
json_t *gw_products_json(const gw_products *p);

/** Seconds in which the wire sends what its buffer holds. */
double gw_wire_drain_s(const gw_wire *w);

/** The send buffer of the transport's TCP connections, and the link's rate. GW_ERR_USAGE where
 *  gw_host_link_read fails. */
gw_err gw_wire_read(gw_wire *out);

/** Seconds that a piece should take. */
double gw_wire_piece_s(const gw_wire *w);

/** What strategies may know of the wire, where a rank polls every `gap_s` seconds. */
struct gw_pace gw_wire_pace(const gw_wire *w, double gap_s);

/* ---- the cache ---- */

/** Times by name, under a lock of their own from load to store. */
typedef struct gw_products_cache gw_products_cache;

/** Never fails but without memory: where nothing can be kept, `note` says why. */
gw_err gw_products_cache_open(gw_products_cache **out, int threads, char note[256]);
/** NaN: not there. */
double gw_products_cache_get(const gw_products_cache *c, const char *name);
void gw_products_cache_put(gw_products_cache *c, const char *name, double seconds);
/** Write what is new, unlock and free. */
void gw_products_cache_close(gw_products_cache *c, char note[256]);

#endif
