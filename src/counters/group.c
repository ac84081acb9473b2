/* Event groups: their files, and which of them a run counts, by CPU or as the user chose. */
#include "counters/group.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/text.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE = 1024, MOST_BYTES = 1 << 16 };

typedef struct reader {
    gw_group_choice *out;
    const gw_cpu *cpu;
    const char *path;
    int line;
    bool fits, cpus; /* a cpu line matches; one exists */
} reader;

/* The reason, the file and the line. */
#define BAD(r, fmt, ...)                                                                           \
    gw_fail(GW_ERR_INPUT, "%s: line %d: " fmt, (r)->path, (r)->line, __VA_ARGS__)

static char *group_trim(char *s) {
    s += strspn(s, " \t\r");
    char *end = s + strlen(s);
    while (end > s && strchr(" \t\r", end[-1]))
        *--end = '\0';
    return s;
}

/* The next word of *rest, which moves behind it. */
static char *group_next_word(char **rest) {
    char *word = *rest + strspn(*rest, " \t");
    char *end = word + strcspn(word, " \t");
    *rest = *end ? end + 1 : end;
    *end = '\0';
    return word;
}

static bool group_good_name(const char *s) {
    if (!isalpha((unsigned char)*s))
        return false;
    for (; *s; s++)
        if (!isalnum((unsigned char)*s) && *s != '_')
            return false;
    return true;
}

/* Is `value` in `list` ("1,16-31", decimal or 0x..)? */
static gw_err group_in_list(const reader *r, const char *list, int value, bool *is) {
    *is = false;
    for (const char *at = list;;) {
        char *end;
        long low = strtol(at, &end, 0), high = low;
        if (end == at)
            return BAD(r, "'%s': numbers and ranges with commas between expected", list);
        if (*end == '-') {
            at = end + 1;
            high = strtol(at, &end, 0);
            if (end == at || high < low)
                return BAD(r, "'%s': a range needs two numbers, the lower first", list);
        }
        *is = *is || (value >= low && value <= high);
        if (*end == '\0')
            return GW_OK;
        if (*end != ',')
            return BAD(r, "'%s': numbers and ranges with commas between expected", list);
        at = end + 1;
    }
}

static gw_err group_cpu_line(reader *r, char *rest) {
    const struct {
        const char *key;
        int value;
    } keys[] = {{"family", r->cpu->family},
                {"model", r->cpu->model},
                {"implementer", r->cpu->implementer},
                {"part", r->cpu->part}};
    bool all = true;
    int words = 0;
    for (char *word = group_next_word(&rest); *word; word = group_next_word(&rest), words++) {
        char *value = strchr(word, '=');
        if (!value)
            return BAD(r, "'%s': KEY=LIST expected", word);
        *value++ = '\0';
        bool known = strcmp(word, "vendor") == 0, is = known && !strcmp(value, r->cpu->vendor);
        for (size_t k = 0; k < sizeof keys / sizeof *keys && !known; k++)
            if (strcmp(word, keys[k].key) == 0) {
                known = true;
                GW_TRY(group_in_list(r, value, keys[k].value, &is));
            }
        if (!known)
            return BAD(r, "'%s': must be vendor, family, model, implementer or part", word);
        all = all && is;
    }
    if (words == 0)
        return BAD(r, "cpu: %s", "KEY=LIST expected");
    r->cpus = true;
    r->fits = r->fits || all;
    return GW_OK;
}

static gw_err group_event_line(reader *r, gw_group *g, char *rest) {
    char *names = strchr(rest, '=');
    if (!names)
        return BAD(r, "%s", "event NAME CHECK = PAPI-NAME expected");
    *names++ = '\0';
    if (g->events == GW_GROUP_HARDWARE)
        return BAD(r, "more than %d events in group %s: not every CPU counts so many at once",
                   GW_GROUP_HARDWARE, g->name);
    char *name = group_next_word(&rest), *check = group_next_word(&rest);
    if (!group_good_name(name) || strlen(name) >= GW_GROUP_NAME || !strcmp(name, "min") ||
        !strcmp(name, "max"))
        return BAD(r, "event '%s': a name of letters, digits and _ expected", name);
    for (int i = 0; i < g->events; i++)
        if (strcmp(g->event[i].name, name) == 0)
            return BAD(r, "event %s is in group %s already", name, g->name);
    gw_group_event *e = &g->event[g->events++];
    strcpy(e->name, name);
    int s = 0;
    while (s < GW_SANITIES && strcmp(check, gw_sanity_name((gw_sanity)s)) != 0)
        s++;
    if (s == GW_SANITIES)
        return BAD(r,
                   "event %s: check '%s': must be cycles, instructions, stalls, misses, stores, "
                   "window or any",
                   name, check);
    e->sanity = (gw_sanity)s;
    for (char *bar; names; names = bar ? bar + 1 : NULL) {
        bar = strchr(names, '|');
        if (bar)
            *bar = '\0';
        char *papi = group_trim(names);
        if (!*papi || strlen(papi) >= GW_EVENT_NAME || strpbrk(papi, " \t,"))
            return BAD(r, "event %s: '%s' is not the name of a PAPI event", e->name, papi);
        if (e->names == GW_GROUP_NAMES)
            return BAD(r, "event %s: more than %d names", e->name, GW_GROUP_NAMES);
        strcpy(e->papi[e->names++], papi);
    }
    return GW_OK;
}

static gw_err group_formula(const reader *r, const gw_group *g, char *text, gw_expr *out) {
    const char *names[GW_GROUP_EVENTS];
    for (int i = 0; i < g->events; i++)
        names[i] = g->event[i].name;
    if (gw_expr_parse(out, group_trim(text), names, g->events) != GW_OK) {
        char why[512];
        gw_text_print(why, sizeof why, "%s", gw_err_text());
        return BAD(r, "%s", why);
    }
    return GW_OK;
}

static gw_err group_one_line(reader *r, char *line) {
    line[strcspn(line, "#")] = '\0';
    char *rest = group_trim(line);
    if (!*rest)
        return GW_OK;
    char *word = group_next_word(&rest);
    if (strcmp(word, "cpu") == 0)
        return group_cpu_line(r, rest);
    if (strcmp(word, "group") == 0) {
        char *name = group_trim(rest);
        if (!group_good_name(name) || strlen(name) >= GW_GROUP_NAME)
            return BAD(r, "group '%s': a name of letters, digits and _ expected", name);
        for (int g = 0; g < r->out->groups; g++)
            if (strcmp(r->out->group[g].name, name) == 0)
                return BAD(r, "group %s is there already", name);
        if (r->out->groups == GW_GROUPS)
            return BAD(r, "more than %d groups", GW_GROUPS);
        strcpy(r->out->group[r->out->groups++].name, name);
        return GW_OK;
    }
    bool event = strcmp(word, "event") == 0, memory = strcmp(word, "memory") == 0;
    if (!event && !memory && strcmp(word, "figure") != 0)
        return BAD(r, "'%s': must be cpu, group, event, memory or figure", word);
    if (r->out->groups == 0)
        return BAD(r, "%s before the first group", word);
    gw_group *g = &r->out->group[r->out->groups - 1];
    if (event)
        return group_event_line(r, g, rest);
    char *text = strchr(rest, '=');
    if (!text)
        return BAD(r, "%s = FORMULA expected", memory ? "memory" : "figure NAME");
    *text++ = '\0';
    char *name = group_trim(rest);
    if (memory) {
        if (*name && strcmp(name, "lower") != 0 && strcmp(name, "upper") != 0)
            return BAD(r, "memory '%s': must be lower, upper or nothing", name);
        if (g->memory.steps)
            return BAD(r, "group %s has a memory formula already", g->name);
        g->bound = !*name ? GW_BOUND_NONE : *name == 'l' ? GW_BOUND_LOWER : GW_BOUND_UPPER;
        return group_formula(r, g, text, &g->memory);
    }
    if (!group_good_name(name) || strlen(name) >= GW_GROUP_NAME)
        return BAD(r, "figure '%s': a name of letters, digits and _ expected", name);
    if (g->figures == GW_GROUP_FIGURES)
        return BAD(r, "more than %d figures in group %s", GW_GROUP_FIGURES, g->name);
    gw_group_figure *f = &g->figure[g->figures++];
    strcpy(f->name, name);
    return group_formula(r, g, text, &f->value);
}

gw_err gw_group_parse(gw_group_choice *out, bool *fits, const gw_cpu *cpu, const char *path,
                      const char *text) {
    *out = (gw_group_choice){0};
    reader r = {.out = out, .cpu = cpu, .path = path};
    while (*text) {
        char line[LINE];
        size_t len = strcspn(text, "\n");
        r.line++;
        if (len >= sizeof line)
            return BAD(&r, "longer than %d characters", LINE - 1);
        memcpy(line, text, len);
        line[len] = '\0';
        GW_TRY(group_one_line(&r, line));
        text += len + (text[len] == '\n');
    }
    for (int g = 0; g < out->groups; g++)
        if (out->group[g].events == 0)
            return gw_fail(GW_ERR_INPUT, "%s: group %s has no events", path, out->group[g].name);
    if (out->groups == 0)
        return gw_fail(GW_ERR_INPUT, "%s: no group in it", path);
    *fits = r.fits;
    return GW_OK;
}

/* ---- which groups a run counts ---- */

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

static gw_err group_choose_automatic(gw_group_choice *out) {
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

/* NAME or NAME/GROUP of a built-in file. */
static gw_err group_choose_named(gw_group_choice *out, const char *group) {
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
    if (access(group, F_OK) == 0) {
        char *text = NULL;
        size_t len;
        GW_TRY(gw_file_read(group, MOST_BYTES, &text, &len));
        gw_err e = strlen(text) == len ? gw_group_parse(out, &fits, &cpu, group, text)
                                       : gw_fail(GW_ERR_INPUT, "%s: contains a zero byte", group);
        free(text);
        gw_text_print(out->name, sizeof out->name, "%.255s", group);
        return e;
    }
    char all[512] = "auto, none";
    for (int i = 0; i < gw_group_text_count; i++)
        snprintf(all + strlen(all), sizeof all - strlen(all), ", %s", gw_group_texts[i].name);
    return gw_fail(GW_ERR_USAGE,
                   "papi-group: no group '%s': must be one of %s, or the path of a group file",
                   group, all);
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

gw_err gw_group_choose(gw_group_choice **out, const char *group, const char *events) {
    gw_group_choice *c = NULL;
    gw_err e = GW_OK;
    bool automatic = strcmp(group, "auto") == 0;
    GW_TRY(gw_alloc(&c, 1, sizeof *c));
    if (strcmp(group, "none") == 0)
        gw_text_print(c->reason, sizeof c->reason, "not wanted: --papi-group none");
    else if (!automatic)
        e = group_choose_named(c, group);
    else if (!events)
        e = group_choose_automatic(c);
    c->named = events || (!automatic && c->groups > 0);
    if (events)
        GW_THEN(e, group_add_events(c, events));
    GW_OPENED(e, out, c, free);
}
