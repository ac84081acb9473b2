/** What a run was asked for and does not do: for example, its codec encodes nothing, or there are
 *  no messages to check. It is predicted once the exchange is open, for the first lines of a run,
 *  and found again at its end from what was counted. */
#ifndef GW_RUN_UNMET_H
#define GW_RUN_UNMET_H

#include "comm/lane_parts.h"
#include "comm/mix.h"
#include "comm/strategy.h"

#include <jansson.h>

/** --OPTION VALUE: WHAT: WHY */
typedef struct gw_unmet_item {
    const char *option;
    char value[128], what[32], why[160];
} gw_unmet_item;

enum { GW_UNMET_MOST = GW_MIX_CODECS + 8 };

typedef struct gw_unmet {
    int n;
    gw_unmet_item item[GW_UNMET_MOST];
    gw_codings all[GW_MIX_CODECS + 1]; /* of the mix's codecs, then of parameters; of all ranks */
    bool idle[GW_MIX_CODECS];          /* this codec encodes nothing, though it is not `none` */
    bool encodes;                      /* some codec does, or all are `none` */
    char codec[480]; /* if none does: the session's, and "(not encoded here)"; else "" */
} gw_unmet;

/** An open exchange. */
typedef struct gw_unmet_of {
    const gw_lane *lane; /* of gradients */
    const gw_mix *mix;
    const gw_codings *codings; /* of the mix's codecs, and of parameters */
    const gw_strategy_ops *strategy;
    const gw_args *args;  /* the strategy's */
    const char *feedback; /* as asked for */
    bool holds;           /* some codec would keep a residual */
    bool framed;
    bool stepped; /* something was exchanged since the count began */
} gw_unmet_of;

/** When the question is asked, and where. */
typedef struct gw_unmet_ask {
    bool ended;    /* judge by what was counted, else by what was laid down */
    int64_t steps; /* of the run; 0: not known */
    bool carried;  /* ranks of one replica exchange activations, too, in frames if asked */
} gw_unmet_ask;

/** Find what is unmet. Collective over `comm`, the lane's or one that contains it. */
gw_err gw_unmet_find(gw_unmet *out, const gw_unmet_of *of, gw_unmet_ask ask, MPI_Comm comm);

/** Add an item; without room it is left out. */
void gw_unmet_add(gw_unmet *u, const char *option, const char *value, const char *what,
                  const char *why);

/** Add those of a method's options that wait for a later step than the last of `steps`; return the
 *  first of these, as name=value, or NULL. `method`: its name, or a spec with other options. */
const char *gw_unmet_late(gw_unmet *u, const char *option, const char *method, const gw_args *args,
                          int64_t steps);

/** Print for people, one per line, except those that `but` (NULL: nothing) has already. */
void gw_unmet_print(const gw_unmet *u, const gw_unmet *but, FILE *to);
/** The same as a text, cut where `room` ends. */
void gw_unmet_text(const gw_unmet *u, char *out, size_t room);
/** Return a list of {option, value, what, why}. */
json_t *gw_unmet_json(const gw_unmet *u);

#endif
