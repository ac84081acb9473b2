/** A codec's speed and size on a gradient, by the lane that will use it: error feedback
 *  included. */
#ifndef GW_PREDICT_CODEC_H
#define GW_PREDICT_CODEC_H

#include "compress/codec.h"

#include <jansson.h>

#include <mpi.h>

enum { GW_CODEC_ENOUGH = 1 << 20 }; /* floats of a gradient that tell speed and size */

/** Measure a price on gradient[0..n), or on as many normal numbers where it is NULL, on each rank
 *  by itself and on all at the same time; the largest figures of all ranks. Nobody else may have
 *  told the codec its ranks. Collective. */
gw_err gw_codec_measure_price(gw_codec *codec, bool feedback, const float *gradient, size_t n,
                              gw_codec_price *out, MPI_Comm comm);

/** Measure it here, as one of so many ranks, of the codec that `spec` opens, in frames or not, with
 *  error feedback as `feedback` (--error-feedback) has it. Errors of gw_codec_open, too. */
gw_err gw_codec_time_spec(const gw_spec *spec, bool framed, const char *feedback,
                          const float *gradient, size_t n, int ranks, gw_codec_price *out);

/** Return it for cores that are so many times as fast. */
gw_codec_price gw_codec_price_scaled(const gw_codec_price *p, double cores);

/** Describe one part of a price by kind of coding, for JSON; the caller's. */
json_t *gw_codec_price_json(const double of[GW_CODINGS]);

#endif
