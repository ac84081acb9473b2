#include "run/unmet.h"

#include "base/json.h"
#include "base/text.h"
#include "mpi/wait.h"

#include <string.h>

#define NOT_ENCODED "not encoded here"

void gw_unmet_add(gw_unmet *u, const char *option, const char *value, const char *what,
                  const char *why) {
    if (u->n == GW_UNMET_MOST)
        return;
    gw_unmet_item *i = &u->item[u->n++];
    i->option = option;
    gw_text_copy(i->value, sizeof i->value, value);
    gw_text_copy(i->what, sizeof i->what, what);
    gw_text_copy(i->why, sizeof i->why, why);
}

const char *gw_unmet_late(gw_unmet *u, const char *option, const char *method, const gw_args *args,
                          int64_t steps) {
    int before = u->n;
    char value[128], why[160];
    gw_text_print(why, sizeof why, "the run ends with step %lld", (long long)steps);
    for (const gw_opt *o = args ? gw_args_opts(args) : NULL; o && o->name; o++) {
        bool after = o->type == GW_OPT_STEPS;
        if ((!after && o->type != GW_OPT_PERIOD) || gw_args_int(args, o->name) + after <= steps)
            continue;
        gw_text_print(value, sizeof value, "%.*s:%s=%s", (int)strcspn(method, ":"), method, o->name,
                      gw_args_text(args, o->name));
        gw_unmet_add(u, option, value, "nothing comes after it", why);
    }
    return u->n > before ? strchr(u->item[before].value, ':') + 1 : NULL;
}

static const char *unmet_alone(const gw_unmet_of *of, gw_unmet_ask ask) {
    return of->lane->size > 1 ? NULL
           : ask.carried      ? "data=1: there is no other replica"
                              : "1 rank exchanges nothing";
}

/* Is there a tensor for codec i on this rank? */
static bool unmet_has_tensors(const gw_unmet_of *of, int i) {
    const gw_lane *lane = of->lane;
    bool has = lane->n_runs == 0;
    for (int k = 0; k < lane->n_runs; k++)
        has = has || lane->runs[k].lane->codec == &of->mix->codec[i];
    return has;
}

/* `all` encodes, or a run that was resumed only to end does, as it did before. */
static bool unmet_encodes(const gw_unmet_of *of, const gw_codings *all, gw_unmet_ask ask) {
    bool counts = ask.ended && (of->stepped || of->lane->ticket == 0);
    return counts ? all->floats > 0 : all->laid > 0;
}

/* Why codec i encodes nothing; NULL: it does, or changes nothing. `late`: what the strategy waited
 * for in vain; or NULL. */
static const char *unmet_codec(const gw_unmet *u, const gw_unmet_of *of, gw_unmet_ask ask, int i,
                               const char *late) {
    const gw_codec *codec = &of->mix->codec[i];
    const char *plain = of->codings[i].plain, *alone = unmet_alone(of, ask);
    if (codec->ops->caps & GW_CODEC_IDENTITY || unmet_encodes(of, &u->all[i], ask))
        return NULL;
    return alone                            ? alone
           : !unmet_has_tensors(of, i)      ? "other rules take every tensor"
           : *plain                         ? plain
           : !ask.ended || of->lane->n == 0 ? NULL /* what is laid down later may encode */
           : of->stepped && late            ? late
           : of->stepped                    ? "no encoding was counted"
                                            : "no step was exchanged";
}

static void unmet_codecs(gw_unmet *u, const gw_unmet_of *of, gw_unmet_ask ask, const char *late) {
    bool chosen = false;
    u->encodes = false;
    for (int i = 0; i < of->mix->n; i++) {
        const gw_codec *codec = &of->mix->codec[i];
        const char *why = unmet_codec(u, of, ask, i, late);
        bool changes = !(codec->ops->caps & GW_CODEC_IDENTITY);
        chosen = chosen || changes;
        u->encodes = u->encodes || (changes && !why);
        u->idle[i] = why;
        if (why)
            gw_unmet_add(u, "compress", codec->spec, NOT_ENCODED, why);
    }
    u->encodes = u->encodes || !chosen;
    char name[400];
    gw_text_copy(name, sizeof name, of->mix->n > 1 ? of->mix->spec : of->mix->codec->name);
    if (!u->encodes)
        gw_text_print(u->codec, sizeof u->codec, "%s (" NOT_ENCODED ")", name);
}

static void unmet_feedback(gw_unmet *u, const gw_unmet_of *of) {
    bool asked = strcmp(of->feedback, "off") != 0 && strcmp(of->feedback, "auto") != 0;
    bool holds = of->holds;
    if (asked && !(holds && u->encodes))
        gw_unmet_add(u, "error-feedback", of->feedback, "nothing is held back",
                     holds ? "no codec encodes" : "the codec is lossless");
}

static void unmet_frames(gw_unmet *u, const gw_unmet_of *of, gw_unmet_ask ask) {
    gw_codings sum = {0};
    const char *why = unmet_alone(of, ask);
    for (int i = 0; i <= GW_MIX_CODECS; i++) {
        sum.laid += u->all[i].laid;
        sum.floats += u->all[i].floats;
        why = !why && *of->codings[i].plain ? of->codings[i].plain : why;
    }
    if (of->framed && why && !ask.carried && !unmet_encodes(of, &sum, ask))
        gw_unmet_add(u, "wire-check", "on", "no message is checked", why);
}

static void unmet_lines(gw_unmet *u, const gw_unmet_of *of) {
    char what[GW_UNMET_WHAT], why[GW_UNMET_WHY];
    for (const char *at = of->lane->said.unmet; gw_lane_unmet_next(&at, what, why);)
        gw_unmet_add(u, "comm", of->strategy->head.name, what, why);
}

gw_err gw_unmet_find(gw_unmet *out, const gw_unmet_of *of, gw_unmet_ask ask, MPI_Comm comm) {
    uint64_t sum[GW_MIX_CODECS + 1][3];
    const char *alone = unmet_alone(of, ask);
    unsigned traits = of->strategy->traits & (GW_STRATEGY_LOSSY | GW_STRATEGY_DIRECTS);
    bool lossy = traits == GW_STRATEGY_LOSSY; /* what directs does all else on one rank, too */
    for (int i = 0; i <= GW_MIX_CODECS; i++) {
        sum[i][0] = of->codings[i].laid;
        sum[i][1] = of->codings[i].floats;
        sum[i][2] = of->codings[i].bytes;
    }
    GW_TRY(gw_allreduce(MPI_IN_PLACE, sum, 3 * (GW_MIX_CODECS + 1), MPI_UINT64_T, MPI_SUM, comm));
    *out = (gw_unmet){0};
    for (int i = 0; i <= GW_MIX_CODECS; i++)
        out->all[i] = (gw_codings){.laid = sum[i][0], .floats = sum[i][1], .bytes = sum[i][2]};
    const char *waits = NULL;
    char late[160];
    if (ask.steps > 0 && !alone)
        waits = gw_unmet_late(out, "comm", of->strategy->head.name, of->args, ask.steps);
    gw_text_print(late, sizeof late, "no step comes after %s", waits ? waits : "");
    unmet_codecs(out, of, ask, waits ? late : NULL);
    for (int i = 0; ask.steps > 0 && i < of->mix->n; i++)
        if (!out->idle[i])
            gw_unmet_late(out, "compress", of->mix->codec[i].spec, of->mix->codec[i].args,
                          ask.steps);
    if (alone)
        gw_unmet_add(out, "comm", of->strategy->head.name,
                     lossy ? "nothing is compressed" : "nothing is exchanged",
                     ask.carried ? alone : "there is 1 rank");
    unmet_lines(out, of);
    unmet_feedback(out, of);
    unmet_frames(out, of, ask);
    return GW_OK;
}

void gw_unmet_text(const gw_unmet *u, char *out, size_t room) {
    size_t at = 0;
    *out = '\0';
    for (const gw_unmet_item *i = u->item; i < u->item + u->n; i++)
        at += gw_text_print(out + at, room - at, "--%s %s: %s: %s\n", i->option, i->value, i->what,
                            i->why);
}

static bool unmet_says(const gw_unmet *u, const gw_unmet_item *i) {
    for (const gw_unmet_item *one = u->item; one < u->item + u->n; one++)
        if (strcmp(one->option, i->option) == 0 && strcmp(one->value, i->value) == 0 &&
            strcmp(one->what, i->what) == 0)
            return true;
    return false;
}

void gw_unmet_print(const gw_unmet *u, const gw_unmet *but, FILE *to) {
    for (const gw_unmet_item *i = u->item; i < u->item + u->n; i++)
        if (!but || !unmet_says(but, i))
            fprintf(to, "note: --%s %s: %s: %s\n", i->option, i->value, i->what, i->why);
}

json_t *gw_unmet_json(const gw_unmet *u) {
    json_t *all = json_array();
    for (const gw_unmet_item *i = u->item; i < u->item + u->n; i++)
        json_array_append_new(all, gw_json_object("option:s value:s what:s why:s", i->option,
                                                  i->value, i->what, i->why));
    return all;
}
