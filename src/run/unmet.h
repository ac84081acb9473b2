/** What a run was asked for and does not do: for example, its codec encodes nothing, or there are
 *  no messages to check. gw_session_find_unmet makes the list; its owner may add to it. */
#ifndef GW_RUN_UNMET_H
#define GW_RUN_UNMET_H

#include "base/args.h"
#include "comm/mix.h"

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
    bool idle;       /* codecs were asked for, and none of them encodes */
    char codec[480]; /* if so: the session's, and "(not encoded here)"; else "" */
} gw_unmet;

/** When the question is asked, and where. */
typedef struct gw_unmet_ask {
    bool ended;    /* judge by what was counted; before, only what is certain is said */
    int64_t steps; /* of the run; 0: not known */
    bool carried;  /* ranks of one replica exchange activations, too, in frames if asked */
} gw_unmet_ask;

/** Add an item; without room it is left out. */
void gw_unmet_add(gw_unmet *u, const char *option, const char *value, const char *what,
                  const char *why);

/** Add those of a method's options that wait for a later step than the last of `steps`. `method`:
 *  its name, or a spec with other options. */
void gw_unmet_late(gw_unmet *u, const char *option, const char *method, const gw_args *args,
                   int64_t steps);

/** Print for people, one per line, except those that `but` (NULL: nothing) has already. */
void gw_unmet_print(const gw_unmet *u, const gw_unmet *but, FILE *to);
/** The same as a text, cut where `room` ends. */
void gw_unmet_text(const gw_unmet *u, char *out, size_t room);
/** Return a list of {option, value, what, why}. */
json_t *gw_unmet_json(const gw_unmet *u);

#endif
