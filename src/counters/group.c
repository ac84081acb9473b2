#include "counters/group.h"

#include "base/text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 1024 };

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

static gw_err group_line(reader *r, char *rest) {
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

static gw_err group_add_names(const reader *r, gw_group_event *e, char *text) {
    for (char *at = text; at;) {
        char *bar = strchr(at, '|');
        if (bar)
            *bar = '\0';
        char *name = group_trim(at);
        if (!*name || strlen(name) >= GW_EVENT_NAME || strpbrk(name, " \t,"))
            return BAD(r, "event %s: '%s' is no name of PAPI's", e->name, name);
        if (e->names == GW_GROUP_NAMES)
            return BAD(r, "event %s: more than %d names", e->name, GW_GROUP_NAMES);
        strcpy(e->papi[e->names++], name);
        at = bar ? bar + 1 : NULL;
    }
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
    return group_add_names(r, e, names);
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

static gw_err group_memory_line(reader *r, gw_group *g, char *rest) {
    char *text = strchr(rest, '=');
    if (!text)
        return BAD(r, "%s", "memory = FORMULA expected");
    *text++ = '\0';
    char *bound = group_trim(rest);
    if (*bound && strcmp(bound, "lower") != 0 && strcmp(bound, "upper") != 0)
        return BAD(r, "memory '%s': must be lower, upper or nothing", bound);
    if (g->memory.steps)
        return BAD(r, "group %s has a memory formula already", g->name);
    g->bound = !*bound ? GW_BOUND_NONE : *bound == 'l' ? GW_BOUND_LOWER : GW_BOUND_UPPER;
    return group_formula(r, g, text, &g->memory);
}

static gw_err group_figure_line(reader *r, gw_group *g, char *rest) {
    char *text = strchr(rest, '=');
    if (!text)
        return BAD(r, "%s", "figure NAME = FORMULA expected");
    *text++ = '\0';
    char *name = group_trim(rest);
    if (!group_good_name(name) || strlen(name) >= GW_GROUP_NAME)
        return BAD(r, "figure '%s': a name of letters, digits and _ expected", name);
    if (g->figures == GW_GROUP_FIGURES)
        return BAD(r, "more than %d figures in group %s", GW_GROUP_FIGURES, g->name);
    gw_group_figure *f = &g->figure[g->figures++];
    strcpy(f->name, name);
    return group_formula(r, g, text, &f->value);
}

static gw_err group_one_line(reader *r, char *line) {
    line[strcspn(line, "#")] = '\0';
    char *rest = group_trim(line);
    if (!*rest)
        return GW_OK;
    char *word = group_next_word(&rest);
    if (strcmp(word, "cpu") == 0)
        return group_cpu_line(r, rest);
    if (strcmp(word, "group") == 0)
        return group_line(r, rest);
    bool event = strcmp(word, "event") == 0, memory = strcmp(word, "memory") == 0;
    if (!event && !memory && strcmp(word, "figure") != 0)
        return BAD(r, "'%s': must be cpu, group, event, memory or figure", word);
    if (r->out->groups == 0)
        return BAD(r, "%s before the first group", word);
    gw_group *g = &r->out->group[r->out->groups - 1];
    return event    ? group_event_line(r, g, rest)
           : memory ? group_memory_line(r, g, rest)
                    : group_figure_line(r, g, rest);
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
