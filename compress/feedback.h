/** Error feedback (Seide et al., INTERSPEECH 2014; Karimireddy et al., ICML 2019): what a codec
 * drops of a gradient x is added to the next one. v = x + e;  wire = encode(v);  e' = v -
 * decode(wire) In the fewest passes that the codec allows: all in one (gw_codec_encode_feedback),
 * or the little that a sparse encoding holds taken off e, or three passes. Any number of threads,
 * the same bits. */
#ifndef GW_COMPRESS_FEEDBACK_H
#define GW_COMPRESS_FEEDBACK_H

#include "compress/codec.h"

/** e[0..n) += x[0..n). */
void gw_feedback_add(float *e, const float *x, size_t n);

/** Encode x + e into out[0..cap) as gw_codec_encode does; e becomes what the encoding drops. x is
 *  undefined then, or with `adopt` what was encoded. */
gw_err gw_feedback_encode(const gw_codec *c, gw_turn turn, float *x, float *e, size_t n, bool adopt,
                          void *out, size_t cap, size_t *len);

/** The same where e is x + e already; x is not read. For sparse codecs. */
gw_err gw_feedback_encode_sum(const gw_codec *c, gw_turn turn, float *x, float *e, size_t n,
                              bool adopt, void *out, size_t cap, size_t *len);

/** The same behind gw_feedback_add(e, x, n) and, of e, gw_codec_measure. */
gw_err gw_feedback_encode_agreed(const gw_codec *c, gw_turn turn, float *x, float *e, size_t n,
                                 void *out, size_t cap, size_t *len);

#endif
