/** Measuring what the cost model of layouts (select/layout.h) is made of: on the actual ranks, all
 *  at once. */
#ifndef GW_SELECT_LAYOUT_SURVEY_H
#define GW_SELECT_LAYOUT_SURVEY_H

#include "machine/curve.h"
#include "run/session.h"
#include "select/placed.h"

/** What groups of ranks take for an exchange: groups of `size` ranks, `stride` apart from each
 *  other, as the dimensions of meshes have them; all such groups at the same time. */
typedef struct gw_group_curve {
    int size, stride;
    bool link;        /* one of them is spread over hosts */
    gw_curve sums[2]; /* allreduces of plain floats: between tensor ranks, of gradients */
    double sent[2];   /* bytes that a rank sends for each byte of them */
    gw_curve hop;     /* a message to a neighbour, the slowest; .n == 0: nobody asked */
} gw_group_curve;

enum { GW_GROUP_CURVES = 64 };

typedef struct gw_layout_survey {
    const gw_place_setup *place;
    const gw_session *session; /* its strategy, and its algorithm for plain floats */
    bool yield;                /* the node runs more threads than cores */
    double budget_s;
    gw_group_curve curve[GW_GROUP_CURVES]; /* filled */
    int n_curves;
} gw_layout_survey;

/** Collective: the curves of all groups that the layouts have, in about budget_s seconds; then
 *  price[i] of layout[i]: a few microbatches on the slowest rank, without what other ranks send,
 *  and the optimizer. The same result on all ranks. Errors of gw_placed_open, and
 *  GW_ERR_UNSUPPORTED: a strategy that the cost model does not know. */
gw_err gw_layouts_survey(gw_layout_survey *s, const gw_layout *layout, int n,
                         gw_layout_price *price);

/** GW_ERR_UNSUPPORTED: the model does not know the strategy. */
gw_err gw_layouts_know(const gw_session *session);

#endif
