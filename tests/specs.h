/* What the tests open from text. The parsed trees stay until the program ends, as a run keeps those
 * of its options. */
#ifndef GW_TESTS_SPECS_H
#define GW_TESTS_SPECS_H

#include "optim/optimizer.h"
#include "run/session.h"

#include <stdlib.h>
#include <string.h>

typedef struct kept_spec {
    char *text;
    gw_spec_form form;
    gw_spec *spec;
    struct kept_spec *next;
} kept_spec;

static inline gw_err keep_spec(const gw_spec **out, const char *text, gw_spec_form form) {
    static kept_spec *all;
    kept_spec *k = all;
    while (k && (k->form != form || strcmp(k->text, text) != 0))
        k = k->next;
    if (!k) {
        gw_spec *spec = NULL;
        GW_TRY(gw_spec_parse(&spec, "test", "spec", text, form));
        k = malloc(sizeof *k);
        *k = (kept_spec){strdup(text), form, spec, all};
        all = k;
    }
    *out = k->spec;
    return GW_OK;
}

static inline gw_err open_codec(gw_codec *out, const char *text) {
    const gw_spec *list = NULL;
    GW_TRY(keep_spec(&list, text, GW_SPEC_LIST));
    return gw_codec_open(out, list->parts);
}

static inline gw_err open_algo(gw_algo *out, const char *text, const gw_codec *codec) {
    const gw_spec *entry = NULL;
    if (text && *text)
        GW_TRY(keep_spec(&entry, text, GW_SPEC_ONE));
    return gw_algo_open(out, entry, codec);
}

static inline gw_err find_strategy(gw_strategy *out, const char *text) {
    const gw_spec *entry = NULL;
    GW_TRY(keep_spec(&entry, text, GW_SPEC_ONE));
    return gw_strategy_find(out, entry);
}

static inline gw_err new_session(gw_session **out, const char *comm, const char *compress,
                                 const char *feedback, bool framed) {
    const gw_spec *entry = NULL, *list = NULL;
    gw_mix mix;
    GW_TRY(keep_spec(&entry, comm, GW_SPEC_ONE));
    GW_TRY(keep_spec(&list, compress, GW_SPEC_LIST));
    GW_TRY(gw_mix_open(&mix, list, framed));
    return gw_session_new(out, entry, &mix, feedback);
}

/* Over n floats of no known tensors. */
static inline gw_err open_optimizer(gw_optimizer **out, const char *text, size_t n) {
    gw_optimizer_setup setup = {.n = n};
    GW_TRY(keep_spec(&setup.spec, text, GW_SPEC_ONE));
    return gw_optimizer_open(out, &setup);
}

#endif
