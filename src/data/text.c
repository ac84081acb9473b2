/* Texts, whose next character a model is to tell. */
#include "data/raw.h"

#include "base/mem.h"
#include "base/text.h"
#include "data/stream.h"

#include <stdlib.h>
#include <string.h>

enum { TEST_PART = 10 }; /* one in so many characters, the last ones */

typedef struct whole {
    uint8_t *at;
    size_t n;
} whole;

static gw_err text_load(whole *t, const char *path) {
    gw_stream *stream = NULL;
    enum { PIECE = 1 << 20 };
    int room = 0;
    size_t got = 1;
    gw_err e = gw_stream_open(&stream, path);
    while (e == GW_OK && got > 0 && t->n <= GW_MAX_SAMPLES) {
        e = gw_grow(&t->at, &room, (int)t->n + PIECE, 1);
        GW_THEN(e, gw_stream_read(stream, t->at + t->n, (size_t)room - t->n, &got));
        t->n += e == GW_OK ? got : 0;
    }
    gw_stream_close(stream);
    if (e == GW_OK && t->n > GW_MAX_SAMPLES)
        return gw_fail(GW_ERR_INPUT, "%s: holds more than %d characters: give a shorter text", path,
                       GW_MAX_SAMPLES);
    return e;
}

/* Its bytes become tokens; how many there may be. */
static int text_number(whole *t, bool bytes) {
    bool seen[UINT8_MAX + 1] = {false};
    uint8_t number[UINT8_MAX + 1];
    int n = 0;
    if (bytes)
        return UINT8_MAX + 1;
    for (size_t i = 0; i < t->n; i++)
        seen[t->at[i]] = true;
    for (int c = 0; c <= UINT8_MAX; c++)
        number[c] = (uint8_t)(seen[c] ? n++ : 0);
    for (size_t i = 0; i < t->n; i++)
        t->at[i] = number[t->at[i]];
    return n;
}

static uint32_t text_windows(size_t characters, int context) {
    return characters > 0 ? (uint32_t)((characters - 1) / (size_t)context) : 0;
}

static gw_err text_cut(gw_raw_part *part, const uint8_t *from, int context) {
    size_t n = (size_t)part->n * (size_t)context;
    GW_TRY(gw_alloc(&part->images, n, 1));
    GW_TRY(gw_alloc(&part->labels, n, sizeof *part->labels));
    memcpy(part->images, from, n);
    for (size_t i = 0; i < n; i++)
        part->labels[i] = from[i + 1];
    return GW_OK;
}

gw_err gw_text_set_read(gw_raw *raw, const char *path, bool bytes, int context, bool outline) {
    whole t = {0};
    *raw = (gw_raw){.rows = 1, .cols = context, .channels = 1, .targets = context, .tokens = true};
    if (context < 1 || context > GW_MAX_SIDE)
        return gw_fail(GW_ERR_USAGE,
                       "data: a text is read by a model that has a context, of 1 to %d characters: "
                       "give --model gpt:context=N",
                       GW_MAX_SIDE);
    gw_err e = text_load(&t, path);
    raw->classes = e == GW_OK ? text_number(&t, bytes) : 0;
    gw_text_copy(raw->source, sizeof raw->source, path);
    size_t train = t.n - t.n / TEST_PART;
    raw->train.n = text_windows(train, context);
    raw->test.n = text_windows(t.n - train, context);
    if (e == GW_OK && raw->test.n == 0)
        e = gw_fail(GW_ERR_INPUT,
                    "%s: %zu characters, of which the last %zu are to test: no window of %d fits: "
                    "give a longer text, or a model of a smaller context",
                    path, t.n, t.n - train, context);
    if (e == GW_OK && raw->classes < 2)
        e = gw_fail(GW_ERR_INPUT, "%s: holds one character again and again", path);
    if (!outline) {
        GW_THEN(e, text_cut(&raw->train, t.at, context));
        GW_THEN(e, text_cut(&raw->test, t.at + train, context));
    }
    free(t.at);
    if (e != GW_OK)
        gw_raw_free(raw);
    return e;
}
