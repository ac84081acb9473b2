/** A codec's speed and size on a gradient, by the lane that will use it: error feedback
 *  included. */
#ifndef GW_PREDICT_CODEC_H
#define GW_PREDICT_CODEC_H

#include "compress/codec.h"

#include <jansson.h>

#include <mpi.h>

enum { GW_CODEC_ENOUGH = 1 << 20 }; /* floats of a gradient that tell speed and size */

/** Open a codec anew, as `like` was opened and framed: it learns of no ranks that `like` knows.
 *  Errors of gw_codec_open. */
gw_err gw_codec_like(const gw_codec *like, gw_codec *out);

/** Measure here, as one of so many ranks, the price of a codec that is opened like `like`, with
 *  error feedback as `feedback` (--error-feedback) has it: on gradient[0..n), or on as many normal
 *  numbers where it is NULL. Errors of gw_codec_open, too. */
gw_err gw_codec_time_price(const gw_codec *like, const char *feedback, const float *gradient,
                           size_t n, int ranks, gw_codec_price *out);

/** The same on each rank by itself and on all at the same time; the largest figures of all ranks.
 *  Collective. */
gw_err gw_codec_measure_price(const gw_codec *like, const char *feedback, const float *gradient,
                              size_t n, gw_codec_price *out, MPI_Comm comm);

/** Return it for cores that are so many times as fast. */
gw_codec_price gw_codec_price_scaled(const gw_codec_price *p, double cores);

/** Describe one part of a price by kind of coding, for JSON; the caller's. */
json_t *gw_codec_price_json(const double of[GW_CODINGS]);

#endif
