/** What the chooser's files share: chooser.c reads options, chooser_run.c measures and chooses. */
#ifndef GW_SELECT_CHOOSER_PARTS_H
#define GW_SELECT_CHOOSER_PARTS_H

#include "select/chooser.h"

/** Whether the cost model knows the strategy's exchange. */
bool gw_chooser_knows(const gw_strategy_ops *ops);

/** *ok: that codec can be had by this algorithm under the strategy; if not, the last message tells
 *  why. */
gw_err gw_chooser_combine(const gw_chooser *a, const gw_codec *codec, const gw_spec *spec,
                          bool *ok);

/** What a strategy that the model knows exchanges, and when: all of `shape` that follows from its
 *  layers and `lazy`. */
gw_err gw_chooser_shape(const gw_strategy *strategy, gw_shape *shape);

/** Measure, predict, choose. */
gw_err gw_chooser_run(gw_chooser *a, const gw_chooser_job *job);

#endif
