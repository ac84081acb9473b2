/* What a session was asked for and does not do: by what is certain before its first step, then by
 * what it has counted. */
#include "run/session.h"

#include "base/text.h"
#include "mpi/wait.h"

#include <string.h>

#define NOT_ENCODED "not encoded here"

static const char *unmet_alone(const gw_session *s, gw_unmet_ask ask) {
    return gw_lane_size(s->env.grads) > 1 ? NULL
           : ask.carried                  ? "data=1: there is no other replica"
                                          : "1 rank exchanges nothing";
}

uint64_t gw_session_frames(const gw_session *s) {
    return gw_lane_encoder(s->env.grads)->of->frames + gw_lane_encoder(s->env.params)->of->frames;
}

/* Add up what all ranks have encoded with each codec, and the frames that they checked. */
static gw_err unmet_count(gw_session *s, MPI_Comm comm, uint64_t *frames) {
    enum { FRAMES = 2 * GW_MIX_CODECS };
    uint64_t sum[FRAMES + 1];
    for (int i = 0; i < GW_MIX_CODECS; i++) {
        sum[2 * i] = s->codings[i].floats;
        sum[2 * i + 1] = s->codings[i].bytes;
    }
    sum[FRAMES] = gw_session_frames(s);
    GW_TRY(gw_allreduce(MPI_IN_PLACE, sum, FRAMES + 1, MPI_UINT64_T, MPI_SUM, comm));
    for (int i = 0; i < GW_MIX_CODECS; i++)
        s->encoded[i] = (gw_coded){.floats = sum[2 * i], .bytes = sum[2 * i + 1]};
    *frames = sum[FRAMES];
    return GW_OK;
}

/* Why codec i, which is not `none`, encodes nothing; NULL: it does, or may. */
static const char *unmet_codec(const gw_session *s, gw_unmet_ask ask, int i) {
    const char *alone = unmet_alone(s, ask);
    if (alone || !ask.ended || s->encoded[i].floats > 0)
        return alone;
    if (s->logical_bytes > s->recounted)
        return "no encoding was counted";
    /* A run that was resumed only to end encoded before. */
    return gw_lane_ticket(s->env.grads) == 0 ? "no step was exchanged" : NULL;
}

static void unmet_codecs(gw_session *s, gw_unmet_ask ask) {
    gw_unmet *u = &s->unmet;
    const gw_mix *mix = &s->mix;
    int changing = 0, idle = 0;
    for (int i = 0; i < mix->n; i++) {
        const gw_codec *codec = &mix->codec[i];
        bool changes = !(codec->ops->caps & GW_CODEC_IDENTITY);
        const char *why = changes ? unmet_codec(s, ask, i) : NULL;
        changing += changes;
        idle += why != NULL;
        if (why)
            gw_unmet_add(u, "compress", codec->spec, NOT_ENCODED, why);
        else if (ask.steps > 0)
            gw_unmet_late(u, "compress", codec->spec, codec->args, ask.steps);
    }
    u->idle = changing > 0 && idle == changing;
    if (u->idle)
        gw_text_print(u->codec, sizeof u->codec, "%.400s (" NOT_ENCODED ")",
                      mix->n > 1 ? mix->spec : mix->codec->name);
}

static void unmet_feedback(gw_session *s) {
    bool asked = strcmp(s->feedback, "off") != 0 && strcmp(s->feedback, "auto") != 0;
    bool holds = gw_residuals_any(&s->residuals);
    if (asked && (!holds || s->unmet.idle))
        gw_unmet_add(&s->unmet, "error-feedback", s->feedback, "nothing is held back",
                     holds ? "no codec encodes" : "the codec is lossless");
}

gw_err gw_session_find_unmet(gw_session *s, gw_unmet_ask ask, MPI_Comm comm) {
    const gw_strategy_ops *ops = s->strategy.ops;
    const char *alone = unmet_alone(s, ask);
    bool lossy = ops->traits & GW_STRATEGY_LOSSY &&
                 ops->gives != GW_GIVES_DIRECTION; /* which has a use on one rank, too */
    uint64_t frames = 0;
    s->unmet = (gw_unmet){0};
    if (ask.ended)
        GW_TRY(unmet_count(s, comm, &frames));
    if (ask.steps > 0 && !alone)
        gw_unmet_late(&s->unmet, "comm", ops->head.name, s->strategy.args, ask.steps);
    unmet_codecs(s, ask);
    if (alone)
        gw_unmet_add(&s->unmet, "comm", ops->head.name,
                     lossy ? "nothing is compressed" : "nothing is exchanged",
                     ask.carried ? alone : "there is 1 rank");
    unmet_feedback(s);
    if (s->framed && !ask.carried && frames == 0 && (alone || ask.ended))
        gw_unmet_add(&s->unmet, "wire-check", "on", "no message is checked",
                     alone ? alone : "no frame was counted");
    return GW_OK;
}
