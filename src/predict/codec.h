/** A codec's speed and size on a gradient, by the lane that will use it: error feedback
 *  included. */
#ifndef GW_PREDICT_CODEC_H
#define GW_PREDICT_CODEC_H

#include "comm/fabric/sim.h"
#include "compress/codec.h"

#include <mpi.h>

/** What coding n floats takes: call_s + n * float_s, by kind; SUM only of summable codecs. */
typedef struct gw_codec_price {
    double call_s[GW_CODINGS], float_s[GW_CODINGS];
    double bytes; /* of an encoding, per float */
} gw_codec_price;

enum { GW_CODEC_ENOUGH = 1 << 20 }; /* floats of a gradient that tell speed and size */

/** Measure it on gradient[0..n), on each rank by itself and on all at the same time; the largest
 *  figures of all ranks. Nobody else may have told the codec its ranks. Collective. */
gw_err gw_codec_measure_price(gw_codec *codec, bool feedback, const float *gradient, size_t n,
                              gw_codec_price *out, MPI_Comm comm);

/** Have coding take that in a played world, on cores so many times as fast. */
void gw_codec_price_play(const gw_codec_price *p, double cores, gw_sim_setup *w);

#endif
