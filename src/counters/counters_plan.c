#include "counters/counters_parts.h"

#include "base/text.h"

#include <string.h>

static int counters_column_of(gw_counter_plans *c, const char *name) {
    for (int i = 0; i < c->columns; i++)
        if (strcmp(c->column[i], name) == 0)
            return i;
    strcpy(c->column[c->columns], name);
    return c->columns++;
}

/* The first of an event's names that counts goes to *out; if none does, out->reason says why. */
static bool counters_find_name(const gw_counter_source *source, const gw_group_event *e,
                               gw_counter_event *out) {
    for (int i = 0; i < e->names; i++) {
        const char *name = e->papi[i];
        if (gw_sanity_check(source, &name, &e->sanity, 1) == GW_OK) {
            strcpy(out->papi, name);
            *out->reason = '\0';
            return true;
        }
        size_t len = strlen(out->reason);
        gw_text_print(out->reason + len, sizeof out->reason - len, "%s%s", len ? "; " : "",
                      gw_err_text());
    }
    return false;
}

/* A whole group may fail where each of its events counts alone. */
static bool counters_count_together(const gw_counter_source *source, const gw_counter_plan *p,
                                    gw_counter_event *said) {
    gw_sanity sanity[GW_GROUP_EVENTS];
    const char *names[GW_GROUP_EVENTS];
    for (int i = 0; i < p->n; i++) {
        sanity[i] = p->group.event[p->event[i]].sanity;
        names[i] = p->papi[i];
    }
    if (gw_sanity_check(source, names, sanity, p->n) == GW_OK)
        return true;
    for (int i = 0; i < p->group.events; i++)
        if (*said[i].papi) {
            *said[i].papi = '\0';
            gw_text_print(said[i].reason, sizeof said[i].reason,
                          "counts alone, not in its group: %.220s", gw_err_text());
        }
    return false;
}

static void plan_group(gw_counter_plans *c, const gw_counter_source *source, const gw_group *g,
                       gw_counters_report *report) {
    gw_counter_event *said = &report->event[report->events];
    gw_counter_plan *p = &c->plan[c->groups];
    *p = (gw_counter_plan){.group = *g};
    for (int i = 0; i < g->events; i++) {
        gw_text_print(said[i].group, sizeof said[i].group, "%s", g->name);
        gw_text_print(said[i].name, sizeof said[i].name, "%s", g->event[i].name);
        if (!counters_find_name(source, &g->event[i], &said[i]))
            continue;
        strcpy(p->papi[p->n], said[i].papi);
        if (source->per_thread(said[i].papi))
            p->worker[p->workers++] = p->n;
        p->event[p->n++] = i;
    }
    report->events += g->events;
    if (p->n == 0 || !counters_count_together(source, p, said))
        return;
    c->groups++;
    for (int i = 0; i < p->n; i++)
        p->column[i] = counters_column_of(c, p->group.event[p->event[i]].name);
    p->memory = g->memory.steps > 0 && gw_counter_plan_usable(p, &g->memory);
    if (p->memory) {
        report->memory = true;
        report->bound = g->bound;
    }
}

bool gw_counter_plan_usable(const gw_counter_plan *p, const gw_expr *e) {
    for (int i = 0; i < p->group.events; i++) {
        bool counts = false;
        for (int k = 0; k < p->n; k++)
            counts = counts || p->event[k] == i;
        if (gw_expr_uses(e, i) && !counts)
            return false;
    }
    return true;
}

/* Says which event does not count first. */
static void counters_say_why(gw_counters_report *r, const gw_group_choice *choice) {
    if (choice->groups == 0) {
        gw_text_print(r->reason, sizeof r->reason, "%s", choice->reason);
        return;
    }
    for (int i = 0; i < r->events; i++)
        if (!*r->event[i].papi) {
            gw_text_print(r->reason, sizeof r->reason, "%s, event %s: %s", choice->name,
                          r->event[i].name, r->event[i].reason);
            return;
        }
    gw_text_print(r->reason, sizeof r->reason, "%s: no formula for it", choice->name);
}

/* Only a file of many groups with different events has more columns than a row. */
static gw_err plan_count_columns(const gw_group_choice *choice) {
    const char *seen[GW_GROUPS * GW_GROUP_EVENTS];
    int n = 0;
    for (int g = 0; g < choice->groups; g++)
        for (int i = 0; i < choice->group[g].events; i++) {
            const char *name = choice->group[g].event[i].name;
            int k = 0;
            while (k < n && strcmp(seen[k], name) != 0)
                k++;
            if (k == n)
                seen[n++] = name;
        }
    return n <= GW_COUNTERS ? GW_OK
                            : gw_fail(GW_ERR_USAGE, "%s: %d counters in all, a row has room for %d",
                                      choice->name, n, GW_COUNTERS);
}

gw_err gw_counter_plans_make(gw_counter_plans *out, gw_counters_report *report,
                             const gw_counter_source *source, const gw_group_choice *choice) {
    GW_TRY(plan_count_columns(choice));
    for (int g = 0; g < choice->groups; g++)
        plan_group(out, source, &choice->group[g], report);
    gw_sanity_end();
    if (!report->memory)
        counters_say_why(report, choice);
    for (int i = 0; i < report->events && choice->named; i++)
        if (!*report->event[i].papi)
            return gw_fail(GW_ERR_UNSUPPORTED,
                           "%s: event %s cannot be counted here: %s (see gradwire doctor)",
                           choice->name, report->event[i].name, report->event[i].reason);
    return GW_OK;
}
