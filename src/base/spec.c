#include "base/spec.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* What is being read: what it is part of can be part of it no more, so that it nests this deep. */
typedef enum spec_level { SPEC_LIST, SPEC_ITEM, SPEC_CHAIN, SPEC_ENTRY } spec_level;

typedef struct spec_reader {
    const char *owner, *option;
    char mark; /* between the items of a list */
} spec_reader;

static const char spec_letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_";

/* The first `mark` outside parentheses, or the end. */
static char *spec_find(char *at, char mark) {
    for (int depth = 0; *at && (depth > 0 || *at != mark); at++)
        depth += (*at == '(') - (*at == ')');
    return at;
}

/* "(text)" stands for text. */
static char *spec_bare(char *text) {
    char *end = *text == '(' ? spec_find(text + 1, ')') : text;
    if (*end != ')' || end[1])
        return text;
    *end = '\0';
    return text + 1;
}

/* The '+' before the next entry of a chain, or the end. An entry begins with a codec's name or a
 * path: so not at the sign of an exponent, nor within the name of a directory. */
static char *spec_plus(char *at) {
    for (char *plus = spec_find(at, '+');; plus = spec_find(plus + 1, '+')) {
        const char *then = plus + 1;
        if (!*plus || *then == '.' || *then == '/')
            return plus;
        size_t letters = strspn(then, spec_letters);
        if (*then >= 'a' && *then <= 'z' && (!then[letters] || strchr(":+", then[letters])))
            return plus;
    }
}

/* "name[:argument=value,..]", which is cut. */
static gw_err spec_entry(gw_spec *s, char *cut) {
    char *at = strchr(cut, ':');
    size_t most = 1;
    s->name = cut;
    if (at)
        *at++ = '\0';
    if (!at || !*at)
        return GW_OK;
    for (const char *p = at; *p; p++)
        most += *p == ',';
    GW_TRY(gw_alloc(&s->arg, most, sizeof *s->arg));
    for (bool last = false; !last;) {
        char *end = spec_find(at, ','), *eq;
        last = !*end;
        *end = '\0';
        eq = strchr(at, '=');
        if (!eq || eq == at)
            return gw_fail(GW_ERR_USAGE, "%s: '%s' (at character %zu of '%s'): expected name=value",
                           s->name, at, (size_t)(at - cut) + 1, s->text);
        *eq = '\0';
        s->arg[s->n_args++] = (gw_spec_arg){at, spec_bare(eq + 1)};
        at = end + 1;
    }
    return GW_OK;
}

static gw_err spec_read(gw_spec **out, const spec_reader *r, const char *text, spec_level level) {
    /* An entry with arguments has a colon before its first '=', and a path a slash. */
    size_t size = strlen(text) + 1, key = strcspn(text, "=:;,+()/");
    bool list = level == SPEC_LIST, rule = level == SPEC_ITEM && key > 0 && text[key] == '=';
    gw_spec *s = NULL;
    GW_TRY(gw_alloc(&s, 1, sizeof *s + 2 * size));
    char *cut = memcpy((char *)(s + 1) + size, text, size);
    s->name = s->text = memcpy(s + 1, text, size);
    *out = s;
    if (rule) {
        cut[key] = '\0';
        s->key = cut;
        return spec_read(&s->parts, r, spec_bare(cut + key + 1), SPEC_CHAIN);
    }
    if (level == SPEC_ENTRY || (!list && !*spec_plus(cut)))
        return spec_entry(s, cut);
    gw_spec **part = &s->parts;
    for (int n = 1; cut; n++, part = &(*part)->next) {
        char *end = list ? spec_find(cut, r->mark) : spec_plus(cut), *then = *end ? end + 1 : NULL;
        *end = '\0';
        cut = spec_bare(cut);
        if (!*cut || n > GW_SPEC_ITEMS)
            return *cut ? gw_fail(GW_ERR_USAGE, "%s: %s: more than %d items", r->owner, r->option,
                                  GW_SPEC_ITEMS)
                        : gw_fail(GW_ERR_USAGE, "%s: %s=%s: an empty item", r->owner, r->option,
                                  s->text);
        GW_TRY(spec_read(part, r, cut, list ? SPEC_ITEM : SPEC_ENTRY));
        cut = then;
    }
    return GW_OK;
}

gw_err gw_spec_parse(gw_spec **out, const char *owner, const char *option, const char *text,
                     gw_spec_form form) {
    const char *odd = text, *outer = text; /* a parenthesis without a partner, or the end */
    int depth = 0;
    for (; *odd && depth >= 0; odd++) {
        outer = depth == 0 ? odd : outer;
        depth += (*odd == '(') - (*odd == ')');
    }
    odd = depth == 0 ? odd : outer;
    if (*odd)
        return gw_fail(GW_ERR_USAGE,
                       "%s: %s=%s: parentheses do not balance: character %zu has no partner", owner,
                       option, text, (size_t)(odd - text) + 1);
    bool commas = form == GW_SPEC_COMMAS && !*spec_find((char *)text, ';');
    spec_reader r = {owner, option, commas ? ',' : ';'};
    gw_spec *s = NULL;
    static const spec_level levels[] = {[GW_SPEC_ONE] = SPEC_ENTRY,
                                        [GW_SPEC_LIST] = SPEC_LIST,
                                        [GW_SPEC_COMMAS] = SPEC_LIST,
                                        [GW_SPEC_CHAIN] = SPEC_CHAIN};
    gw_err e = spec_read(&s, &r, text, levels[form]);
    GW_OPENED(e, out, s, gw_spec_free);
}

void gw_spec_free(gw_spec *spec) {
    while (spec) {
        gw_spec *next = spec->next;
        gw_spec_free(spec->parts);
        free(spec->arg);
        free(spec);
        spec = next;
    }
}
