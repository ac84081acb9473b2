#include "comm/schedule/transfers.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/text.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* Where the reader is. */
typedef struct reader {
    gw_transfers *t;
    const char *path;
    int round, transfer; /* -1: outside of one */
} reader;

__attribute__((format(printf, 2, 3))) static gw_err transfers_fault(const reader *r,
                                                                    const char *format, ...) {
    char where[64] = "", why[256];
    if (r->transfer >= 0)
        snprintf(where, sizeof where, "round %d, transfer %d: ", r->round, r->transfer);
    else if (r->round >= 0)
        snprintf(where, sizeof where, "round %d: ", r->round);
    va_list list;
    va_start(list, format);
    vsnprintf(why, sizeof why, format, list);
    va_end(list);
    return gw_fail(GW_ERR_INPUT, "schedule %s: %s%s", r->path, where, why);
}

/* ---- the text ---- */

/* All keys are known: `keys` has a space around each. */
static gw_err transfers_keys(const reader *r, json_t *object, const char *keys) {
    const char *key;
    json_t *value;
    if (!json_is_object(object))
        return transfers_fault(r, "must be an object with%s", keys);
    json_object_foreach(object, key, value) {
        char shown[40], word[sizeof shown + 2];
        gw_text_plain(shown, sizeof shown, key);
        snprintf(word, sizeof word, " %s ", shown);
        if (!strstr(keys, word))
            return transfers_fault(r, "unknown key '%s': remove it", shown);
    }
    return GW_OK;
}

static gw_err transfers_whole(const reader *r, const json_t *object, const char *key, int min,
                              int max, int *out) {
    const json_t *value = json_object_get(object, key);
    json_int_t x = json_integer_value(value);
    if (!value)
        return transfers_fault(r, "%s is missing: add it", key);
    if (!json_is_integer(value))
        return transfers_fault(r, "%s must be a whole number from %d to %d", key, min, max);
    if (x < min || x > max)
        return transfers_fault(r, "%s is %lld: must be from %d to %d", key, (long long)x, min, max);
    *out = (int)x;
    return GW_OK;
}

static gw_err transfers_read_one(const reader *r, json_t *object, gw_move *x) {
    const gw_transfers *t = r->t;
    GW_TRY(transfers_keys(r, object, " from to block count op "));
    const char *op = json_string_value(json_object_get(object, "op"));
    *x = (gw_move){.round = r->round, .count = 1, .add = op && strcmp(op, "add") == 0};
    GW_TRY(transfers_whole(r, object, "from", 0, t->ranks - 1, &x->from));
    GW_TRY(transfers_whole(r, object, "to", 0, t->ranks - 1, &x->to));
    GW_TRY(transfers_whole(r, object, "block", 0, t->blocks - 1, &x->first));
    if (json_object_get(object, "count"))
        GW_TRY(transfers_whole(r, object, "count", 1, t->blocks - x->first, &x->count));
    if (!op || (!x->add && strcmp(op, "set") != 0))
        return transfers_fault(r, "op must be \"add\" or \"set\"");
    return x->from != x->to ? GW_OK
                            : transfers_fault(r, "rank %d sends block %d to itself: remove it",
                                              x->from, x->first);
}

static gw_err transfers_read_all(reader *r, json_t *root) {
    gw_transfers *t = r->t;
    json_t *rounds = json_object_get(root, "rounds"), *round, *one;
    size_t n = 0, i, k;
    int version;
    GW_TRY(transfers_keys(r, root, " gradwire_schedule about ranks blocks rounds "));
    GW_TRY(transfers_whole(r, root, "gradwire_schedule", 1, 1, &version));
    GW_TRY(transfers_whole(r, root, "ranks", 2, GW_TRANSFERS_CELLS, &t->ranks));
    GW_TRY(transfers_whole(r, root, "blocks", 1, GW_TRANSFERS_CELLS / t->ranks, &t->blocks));
    if (!json_is_array(rounds))
        return transfers_fault(r, "rounds must be a list of rounds");
    json_array_foreach(rounds, i, round) {
        r->round = (int)i;
        if (!json_is_array(round))
            return transfers_fault(r, "must be a list of transfers");
        n += json_array_size(round);
    }
    GW_TRY(gw_alloc(&t->x, n, sizeof *t->x));
    json_array_foreach(rounds, i, round) {
        r->round = (int)i;
        json_array_foreach(round, k, one) {
            r->transfer = (int)k;
            GW_TRY(transfers_read_one(r, one, &t->x[t->n]));
            t->n++;
        }
    }
    r->round = r->transfer = -1;
    return GW_OK;
}

/* ---- the rule ---- */

/* A block on a rank: how many contributions are in it, and in which round its sum was given away
 * and something was received last, counted from 1; 0: never. */
typedef struct cell {
    int have, given, got;
} cell;

static gw_err transfers_add(const reader *r, const gw_move *x, int block, cell *from, cell *to) {
    if (from->given)
        return transfers_fault(r,
                               "rank %d gave its sum of block %d away in round %d: given once more "
                               "it would count twice",
                               x->from, block, from->given - 1);
    if (to->have == r->t->ranks)
        return transfers_fault(r, "rank %d has the whole sum of block %d: nothing may be added",
                               x->to, block);
    if (to->given)
        return transfers_fault(r,
                               "rank %d gives its sum of block %d away in round %d: what rank %d "
                               "adds there would be lost",
                               x->to, block, to->given - 1, x->from);
    if (from->got == x->round + 1)
        return transfers_fault(r,
                               "rank %d gives its sum of block %d away in the round in which it "
                               "receives of it, which would be lost",
                               x->from, block);
    to->have += from->have;
    to->got = from->given = x->round + 1;
    return GW_OK;
}

static gw_err transfers_set(const reader *r, const gw_move *x, int block, const cell *from,
                            cell *to) {
    bool late = from->got == x->round + 1;
    if (from->have != r->t->ranks || late)
        return transfers_fault(r,
                               "rank %d has not the whole sum of block %d before this round (%d of "
                               "%d contributions%s): only that may be set",
                               x->from, block, from->have, r->t->ranks, late ? " after it" : "");
    if (to->have == r->t->ranks)
        return transfers_fault(r, "rank %d has the whole sum of block %d already", x->to, block);
    to->have = r->t->ranks;
    to->got = x->round + 1;
    return GW_OK;
}

/* Does every rank end with the whole sum of each block? */
static gw_err transfers_check_end(const reader *r, const cell *cells) {
    int ranks = r->t->ranks, blocks = r->t->blocks;
    for (int b = 0; b < blocks; b++) {
        int least = 0, most = 0;
        for (int i = 1; i < ranks; i++) {
            least = cells[i * blocks + b].have < cells[least * blocks + b].have ? i : least;
            most = cells[i * blocks + b].have > cells[most * blocks + b].have ? i : most;
        }
        int have = cells[most * blocks + b].have;
        if (have < ranks)
            return transfers_fault(r,
                                   "the contributions to block %d do not come together: at the end "
                                   "rank %d has %d of %d",
                                   b, most, have, ranks);
        if (cells[least * blocks + b].have < ranks)
            return transfers_fault(r, "rank %d never gets the whole sum of block %d", least, b);
    }
    return GW_OK;
}

static gw_err transfers_check(reader *r) {
    const gw_transfers *t = r->t;
    cell *cells = NULL;
    gw_err e = gw_alloc(&cells, (size_t)t->ranks * (size_t)t->blocks, sizeof *cells);
    for (int i = 0; e == GW_OK && i < t->ranks * t->blocks; i++)
        cells[i].have = 1;
    for (int i = 0; e == GW_OK && i < t->n; i++) {
        const gw_move *x = &t->x[i];
        r->transfer = x->round == r->round ? r->transfer + 1 : 0;
        r->round = x->round;
        for (int b = x->first; e == GW_OK && b < x->first + x->count; b++) {
            cell *from = &cells[x->from * t->blocks + b], *to = &cells[x->to * t->blocks + b];
            e = x->add ? transfers_add(r, x, b, from, to) : transfers_set(r, x, b, from, to);
        }
    }
    if (e == GW_OK) {
        r->round = r->transfer = -1;
        e = transfers_check_end(r, cells);
    }
    free(cells);
    return e;
}

/* ---- the file ---- */

gw_err gw_transfers_read(gw_transfers *t, const char *path, const char *text, size_t len) {
    reader r = {t, path, -1, -1};
    json_error_t why;
    *t = (gw_transfers){0};
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &why);
    if (!root)
        return gw_fail(GW_ERR_INPUT, "schedule %s: line %d: not JSON: %s", path, why.line,
                       why.text);
    gw_err e = transfers_read_all(&r, root);
    json_decref(root);
    GW_THEN(e, transfers_check(&r));
    return e;
}

gw_err gw_transfers_load(gw_transfers *t, const char *path) {
    char *text;
    size_t len;
    *t = (gw_transfers){0};
    GW_TRY(gw_file_read(path, GW_TRANSFERS_BYTES, &text, &len));
    gw_err e = gw_transfers_read(t, path, text, len);
    free(text);
    return e;
}

void gw_transfers_clear(gw_transfers *t) {
    free(t->x);
    *t = (gw_transfers){0};
}
