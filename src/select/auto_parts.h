/** What the files of the choice share: auto.c reads, auto_run.c measures and chooses. Nobody else
 *  includes this. */
#ifndef GW_SELECT_AUTO_PARTS_H
#define GW_SELECT_AUTO_PARTS_H

#include "select/auto.h"

/** What a strategy exchanges at a time. */
typedef enum gw_auto_pattern { GW_AUTO_WHOLE, GW_AUTO_BUCKETS, GW_AUTO_LAYERS } gw_auto_pattern;

/** A strategy that the cost model knows. */
typedef struct gw_auto_known {
    const char *name;
    gw_auto_pattern parts;
    bool overlapped;
} gw_auto_known;

/** NULL: it does not. */
const gw_auto_known *gw_auto_known_of(const gw_strategy *s);

/** *ok: that codec can be had by this algorithm under the strategy; if not, the last message tells
 *  why. */
gw_err gw_auto_combine(const gw_auto *a, const gw_codec *codec, const gw_spec *algo, bool *ok);

/** Measure, predict, choose. */
gw_err gw_auto_run(gw_auto *a, const gw_auto_job *job);

#endif
