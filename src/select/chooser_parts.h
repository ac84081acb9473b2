/** What the chooser's files share: chooser.c reads options, chooser_run.c measures and chooses. */
#ifndef GW_SELECT_CHOOSER_PARTS_H
#define GW_SELECT_CHOOSER_PARTS_H

#include "select/chooser.h"

/** What a strategy exchanges at a time. */
typedef enum gw_chooser_pattern {
    GW_CHOOSER_WHOLE,
    GW_CHOOSER_BUCKETS,
    GW_CHOOSER_LAYERS
} gw_chooser_pattern;

/** A strategy that the cost model knows. */
typedef struct gw_chooser_known {
    const char *name;
    gw_chooser_pattern parts;
    bool overlapped;
} gw_chooser_known;

/** NULL: it does not. */
const gw_chooser_known *gw_chooser_known_of(const gw_strategy *s);

/** *ok: that codec can be had by this algorithm under the strategy; if not, the last message tells
 *  why. */
gw_err gw_chooser_combine(const gw_chooser *a, const gw_codec *codec, const gw_spec *spec,
                          bool *ok);

/** What a strategy that the model knows exchanges of an arena of n floats, and when: sets what of
 *  `shape` follows from its layers and `lazy`. *parts: free() it. */
gw_err gw_chooser_shape(const gw_strategy *strategy, gw_shape *shape, size_t n, gw_span **parts);

/** Measure, predict, choose. */
gw_err gw_chooser_run(gw_chooser *a, const gw_chooser_job *job);

#endif
