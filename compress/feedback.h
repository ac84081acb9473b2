/** Error feedback (Seide et al., INTERSPEECH 2014; Karimireddy et al., ICML 2019): what a codec
 *  drops of a gradient x is added to the next one.
 *
 *       v = x + e;  wire = encode(v);  e' = v - decode(wire)
 *
 *  It takes as few passes as the codec allows: one (gw_codec_encode_feedback), or a subtraction of
 *  the few elements of a sparse encoding, or three. Any number of threads gives the same bits. */
#ifndef GW_COMPRESS_FEEDBACK_H
#define GW_COMPRESS_FEEDBACK_H

#include "compress/codec.h"

/** e[0..n) += x[0..n). */
void gw_feedback_add(float *e, const float *x, size_t n);

/** Encode x + e into out[0..cap) as gw_codec_encode does; e becomes what the encoding drops. x
 *  becomes undefined, or with `adopt` the encoded values. */
gw_err gw_feedback_encode(const gw_codec *c, gw_turn turn, float *x, float *e, size_t n, bool adopt,
                          void *out, size_t cap, size_t *len);

/** The same if e is x + e already; does not read x. For sparse codecs. */
gw_err gw_feedback_encode_sum(const gw_codec *c, gw_turn turn, float *x, float *e, size_t n,
                              bool adopt, void *out, size_t cap, size_t *len);

/** The same after gw_feedback_add(e, x, n) and gw_codec_measure of e. */
gw_err gw_feedback_encode_agreed(const gw_codec *c, gw_turn turn, float *x, float *e, size_t n,
                                 void *out, size_t cap, size_t *len);

#endif
