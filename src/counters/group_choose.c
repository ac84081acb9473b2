/* Which groups a run counts: chosen by CPU or by the user. */
#include "base/file.h"
#include "base/mem.h"
#include "base/text.h"
#include "counters/group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_BYTES = 1 << 16 };

static void group_cpu_take(const char *line, const char *key, int *out) {
    const char *value = strchr(line, ':');
    size_t len = strlen(key);
    bool is = strncmp(line, key, len) == 0 &&
              (line[len] == '\t' || line[len] == ':' || (line[len] == ' ' && line[len + 1] == ':'));
    if (is && value && *out < 0)
        *out = (int)strtol(value + 1, NULL, 0);
}

gw_cpu gw_cpu_read(const char *path) {
    gw_cpu cpu = {.family = -1, .model = -1, .implementer = -1, .part = -1};
    FILE *in = fopen(path ? path : "/proc/cpuinfo", "r");
    char line[512];
    while (in && fgets(line, sizeof line, in)) {
        group_cpu_take(line, "cpu family", &cpu.family);
        group_cpu_take(line, "model", &cpu.model);
        group_cpu_take(line, "CPU implementer", &cpu.implementer);
        group_cpu_take(line, "CPU part", &cpu.part);
        if (!*cpu.vendor && strncmp(line, "vendor_id", 9) == 0)
            (void)sscanf(line, "vendor_id : %23s", cpu.vendor);
        if (*line == '\n')
            break; /* the first CPU stands for all */
    }
    if (in)
        fclose(in);
    return cpu;
}

/* Keep only the groups that `keep` names (a group's name, or NULL: those with a memory formula). */
static void group_keep_only(gw_group_choice *c, const char *keep) {
    int n = 0;
    for (int g = 0; g < c->groups; g++)
        if (keep ? strcmp(c->group[g].name, keep) == 0 : c->group[g].memory.steps > 0)
            c->group[n++] = c->group[g];
    c->groups = n;
}

static gw_err choose_automatic(gw_group_choice *out) {
    gw_cpu cpu = gw_cpu_read(NULL);
    for (int i = 0; i < gw_group_text_count; i++) {
        const gw_group_text *t = &gw_group_texts[i];
        bool fits = false;
        GW_TRY(gw_group_parse(out, &fits, &cpu, t->name, t->text));
        if (!fits)
            continue;
        group_keep_only(out, NULL);
        gw_text_print(out->name, sizeof out->name, "%s", t->name);
        return GW_OK;
    }
    *out = (gw_group_choice){0};
    if (cpu.part >= 0)
        gw_text_print(out->reason, sizeof out->reason,
                      "no event group for this CPU (implementer %#x, part %#x)",
                      (unsigned)cpu.implementer, (unsigned)cpu.part);
    else
        gw_text_print(out->reason, sizeof out->reason,
                      "no event group for this CPU (%s, family %d, model %d)",
                      *cpu.vendor ? cpu.vendor : "vendor unknown", cpu.family, cpu.model);
    return GW_OK;
}

static gw_err choose_file(gw_group_choice *out, const char *path) {
    char *text = NULL;
    size_t len;
    bool fits;
    gw_cpu cpu = gw_cpu_read(NULL);
    GW_TRY(gw_file_read(path, MOST_BYTES, &text, &len));
    gw_err e = strlen(text) == len ? gw_group_parse(out, &fits, &cpu, path, text)
                                   : gw_fail(GW_ERR_INPUT, "%s: contains a zero byte", path);
    free(text);
    gw_text_print(out->name, sizeof out->name, "%.255s", path);
    return e;
}

static gw_err group_no_such(const char *group) {
    char all[512] = "auto, none";
    for (int i = 0; i < gw_group_text_count; i++)
        snprintf(all + strlen(all), sizeof all - strlen(all), ", %s", gw_group_texts[i].name);
    return gw_fail(GW_ERR_USAGE,
                   "papi-group: no group '%s': must be one of %s, or the path of a group file",
                   group, all);
}

/* NAME or NAME/GROUP of a built-in file. */
static gw_err choose_named(gw_group_choice *out, const char *group) {
    gw_cpu cpu = gw_cpu_read(NULL);
    bool fits;
    for (int i = 0; i < gw_group_text_count; i++) {
        const gw_group_text *t = &gw_group_texts[i];
        size_t len = strlen(t->name);
        if (strncmp(group, t->name, len) != 0 || (group[len] && group[len] != '/'))
            continue;
        GW_TRY(gw_group_parse(out, &fits, &cpu, t->name, t->text));
        if (group[len] == '/')
            group_keep_only(out, group + len + 1);
        gw_text_print(out->name, sizeof out->name, "%s", group);
        return out->groups ? GW_OK
                           : gw_fail(GW_ERR_USAGE, "papi-group: %s has no group '%s'", t->name,
                                     group + len + 1);
    }
    return access(group, F_OK) == 0 ? choose_file(out, group) : group_no_such(group);
}

/* The user's events as one more group, with their PAPI names. */
static gw_err group_add_events(gw_group_choice *out, const char *events) {
    if (out->groups == GW_GROUPS)
        return gw_fail(GW_ERR_USAGE, "papi-events: give --papi-group with fewer than %d groups",
                       GW_GROUPS);
    gw_group *g = &out->group[out->groups++];
    *g = (gw_group){.name = "events"};
    for (const char *at = events;; at++) {
        size_t len = strcspn(at, ",");
        if (len == 0 || len >= GW_EVENT_NAME)
            return gw_fail(GW_ERR_USAGE,
                           "papi-events: '%s': names of events with commas between expected",
                           events);
        if (g->events == GW_GROUP_EVENTS)
            return gw_fail(GW_ERR_USAGE, "papi-events: more than %d events", GW_GROUP_EVENTS);
        gw_group_event *e = &g->event[g->events++];
        *e = (gw_group_event){.sanity = GW_SANITY_ANY, .names = 1};
        memcpy(e->name, at, len);
        memcpy(e->papi[0], at, len);
        for (int i = 0; i + 1 < g->events; i++)
            if (strcmp(g->event[i].name, e->name) == 0)
                return gw_fail(GW_ERR_USAGE, "papi-events: %s is named twice", e->name);
        at += len;
        if (!*at)
            break;
    }
    const char *sep = *out->name ? "+" : "";
    size_t len = strlen(out->name);
    gw_text_print(out->name + len, sizeof out->name - len, "%sevents", sep);
    return GW_OK;
}

static gw_err choose_by_options(gw_group_choice *out, const char *group, const char *events) {
    bool automatic = strcmp(group, "auto") == 0;
    if (strcmp(group, "none") == 0)
        gw_text_print(out->reason, sizeof out->reason, "not wanted: --papi-group none");
    else if (!automatic)
        GW_TRY(choose_named(out, group));
    else if (!events)
        GW_TRY(choose_automatic(out));
    out->named = events || (!automatic && out->groups > 0);
    return events ? group_add_events(out, events) : GW_OK;
}

gw_err gw_group_choose(gw_group_choice **out, const char *group, const char *events) {
    gw_group_choice *c = NULL;
    GW_TRY(gw_alloc(&c, 1, sizeof *c));
    gw_err e = choose_by_options(c, group, events);
    GW_OPENED(e, out, c, free);
}
