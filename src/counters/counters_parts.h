/** Which events of a choice count here, and in which columns; a part of counters.c. */
#ifndef GW_COUNTERS_COUNTERS_PARTS_H
#define GW_COUNTERS_COUNTERS_PARTS_H

#include "counters/counters.h"

/** A group and how its events are counted. */
typedef struct gw_counter_plan {
    gw_group group;
    int n;                                     /* events that count, in the order of the set */
    int event[GW_GROUP_EVENTS];                /* which of the group's */
    int column[GW_GROUP_EVENTS];               /* where it goes in a row */
    char papi[GW_GROUP_EVENTS][GW_EVENT_NAME]; /* the names that count */
    int workers, worker[GW_GROUP_EVENTS];      /* those of the n that other threads count, too */
    bool memory;
    double total[GW_GROUP_EVENTS]; /* by the group's index */
    int64_t batches;
} gw_counter_plan;

typedef struct gw_counter_plans {
    int groups, columns;
    gw_counter_plan plan[GW_GROUPS];
    char column[GW_COUNTERS][GW_COUNTER_NAME];
} gw_counter_plans;

/** Try each event alone, then each group. Events that do not count are dropped, with the reason in
 *  *report; if choice->named that is GW_ERR_UNSUPPORTED. More columns than a row has:
 *  GW_ERR_USAGE. */
gw_err gw_counter_plans_make(gw_counter_plans *out, gw_counters_report *report,
                             const gw_counter_source *source, const gw_group_choice *choice);

/** True if each event that `e` reads counts. */
bool gw_counter_plan_usable(const gw_counter_plan *p, const gw_expr *e);

#endif
