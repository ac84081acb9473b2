/** The cost model: what a training step takes with a given algorithm and codec, from measured
 *  parts. Pure arithmetic; src/select/survey.h measures the parts.
 *
 *  Messages. An allreduce of b encoded bytes takes t(b) = alpha + beta b (R. Thakur, R.
 * Rabenseifner, W. Gropp, "Optimization of collective communication operations in MPICH", IJHPCA
 * 2005, section 3: a message of n bytes costs alpha + n beta; each algorithm's rounds and bytes
 * make its own alpha and beta). As caches and protocols bend that line, t is a curve through
 * several measured sizes, straight between them, for each algorithm on the very ranks (as the
 * parameters of PLogP depend on the size: T. Kielmann, H. Bal, K. Verstoep, "Fast measurement of
 * LogP parameters for message passing platforms", IPDPS workshops 2000).
 *
 *  Codec. c(n) = n sum over kinds k of w_k p_k, where w_k is how many floats the algorithm codes in
 *  this way for each float of the span, on the busiest rank (kind by kind, since the kinds of one
 *  exchange wait for each other), and p_k what coding one takes. Counted for sra on P ranks: encode
 *  (P-1)/P, decode and add (P-1)/P, encode and adopt 1/P, decode (P-1)/P.
 *
 *  Exchange of n floats of which b n bytes are sent. Without chunks one after the other: t + c. An
 *  algorithm that works on k chunks side by side, over a link that works by itself: the slower of
 *  the two, and of the other what the first chunk takes: max(t, c) + min(t, c) / k. Between
 *  processes of one node messages are the ranks' own copying, so always t + c.
 *
 *  Step. Blocking strategies: local + sum of exchanges, `local` being the step without exchange.
 *  Overlapped ones: a walk along the backward pass, see gw_forecast_step. */
#ifndef GW_SELECT_FORECAST_H
#define GW_SELECT_FORECAST_H

#include "base/probe.h"
#include "machine/curve.h"
#include "select/walk.h"

/** A way of exchanging: an algorithm with a codec. */
typedef struct gw_way {
    gw_curve messages;        /* by encoded bytes, without coding */
    gw_curve exact;           /* of the same algorithm on plain floats */
    double work[GW_CODINGS];  /* floats coded for each float of a span */
    double price[GW_CODINGS]; /* seconds a float */
    double bytes;             /* encoded bytes a float of a span */
    double agreed;            /* bytes a float that ranks have to agree on before (by `exact`) */
    double sent;              /* bytes a rank sends for each encoded byte */
    double chunks;            /* chunks side by side for each float; 0: one whatever the size */
} gw_way;

/** What a step exchanges, and when. */
typedef struct gw_shape {
    gw_walk walk;
    bool overlapped; /* parts start within the backward pass, else after it */
    bool link;       /* messages cross a link, which works beside the ranks */
} gw_shape;

typedef struct gw_forecast {
    double step_s, local_s, codec_s, exposed_s; /* step = local + codec + exposed */
    double sent;                                /* bytes a rank hands to MPI */
} gw_forecast;

/** Of the exchange alone, of n floats in one piece. */
gw_forecast gw_forecast_exchange(const gw_way *way, size_t n, bool link);

/** A whole step; sets what its parts take. Overlapped: a walk (select/walk.h). When a part is final
 *  the rank encodes it; its messages queue on the link behind those of earlier parts for t - alpha
 *  and are complete alpha later. On one node there is no link, and the rank itself moves them at
 *  once. The wait for what is not complete is exposed. */
gw_forecast gw_forecast_step(gw_shape *s, const gw_way *way);

/** Index of the best of n forecasts by step_s; but `plain` (if >= 0) unless the best is shorter by
 *  more than `margin` of it: never compress for a gain that the model cannot be sure of. NaN: not
 *  eligible. -1: none is. */
int gw_forecast_choose(const double *step_s, int n, int plain, double margin);

#endif
