#include "prof/tempo.h"

#include "base/mem.h"
#include "base/rng.h"
#include "base/stats.h"
#include "prof/clock.h"
#include "prof/ledger.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { KEPT = 1024, KINDS = 4, HOPS = 4 };

/* A random sample of what was seen. */
typedef struct series {
    const char *name; /* of a hop's lane */
    int n;
    uint64_t seen;
    double x[KEPT];
} series;

static struct {
    int chunks;
    series *acts; /* [chunks][KINDS]; NULL: closed */
    series *hops; /* [HOPS], by first appearance */
} tempo;

static const char letters[KINDS + 1] = "FBIW";

/* All are kept with the same probability (Vitter, "Random sampling with a reservoir", TOMS 1985):
 * actions come in periods, of which each n-th would be the same microbatch. */
static void tempo_add(series *s, double x) {
    uint64_t place = gw_rng_u64(0, s->seen) % (s->seen + 1);
    if (s->n < KEPT)
        s->x[s->n++] = x;
    else if (place < KEPT)
        s->x[place] = x;
    s->seen++;
}

/* Sorts what it is of, so it is asked at the end. */
static double tempo_median(series *s) {
    return s && s->n > 0 ? gw_stats_median(s->x, s->n) : NAN;
}

static series *tempo_act(char letter, int chunk) {
    const char *kind = letter ? strchr(letters, letter) : NULL;
    return tempo.acts && kind && chunk >= 0 && chunk < tempo.chunks
               ? &tempo.acts[chunk * KINDS + (kind - letters)]
               : NULL;
}

/* NULL: unknown, and no room for one more. */
static series *tempo_hop(const char *name) {
    for (int i = 0; tempo.hops && i < HOPS; i++) {
        series *s = &tempo.hops[i];
        if (!s->name)
            s->name = name;
        if (strcmp(s->name, name) == 0)
            return s;
    }
    return NULL;
}

static void tempo_hear(const gw_action *a, uint64_t start, uint64_t end) {
    series *s = tempo_act(a->letter, a->chunk);
    if (s)
        tempo_add(s, gw_clock_seconds(end - start));
}

static const gw_ledger_sink tempo_sink = {.action = tempo_hear};

gw_err gw_tempo_open(int chunks) {
    gw_tempo_close();
    tempo.chunks = chunks;
    GW_TRY(gw_alloc(&tempo.acts, (size_t)chunks * KINDS, sizeof *tempo.acts));
    gw_ledger_listen(&tempo_sink);
    gw_err e = gw_alloc(&tempo.hops, HOPS, sizeof *tempo.hops);
    if (e != GW_OK)
        gw_tempo_close();
    return e;
}

void gw_tempo_close(void) {
    if (tempo.acts)
        gw_ledger_unlisten(&tempo_sink);
    free(tempo.acts);
    free(tempo.hops);
    memset(&tempo, 0, sizeof tempo);
}

void gw_tempo_hop(const char *name, double s) {
    series *to = name ? tempo_hop(name) : NULL;
    if (to)
        tempo_add(to, s);
}

double gw_tempo_action_s(char letter, int chunk) {
    return tempo_median(tempo_act(letter, chunk));
}

double gw_tempo_hop_s(const char *name) {
    return tempo_median(tempo_hop(name));
}
