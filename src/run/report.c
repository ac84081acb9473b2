#include "run/report.h"

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "comm/tuning.h"

/* Sampled layers, rows of the last epoch of gw_codec_stats_epoch; null: none were sampled. */
static json_t *report_codecs(const gw_codec_row *rows, int n) {
    if (!rows)
        return json_null();
    json_t *all = json_array();
    for (int l = 0; l < n; l++) {
        const gw_codec_row *r = &rows[l];
        json_array_append_new(all,
                              gw_json_object("layer:i codec:s samples:I relative_error:f cosine:f "
                                             "gradient_norm:f residual_norm:f bits_per_element:f",
                                             l, r->codec, r->samples, r->relative_error, r->cosine,
                                             r->gradient_norm, r->residual_norm, r->bits));
    }
    return all;
}

/* What each codec encoded, all ranks together. */
static json_t *report_encoded(const gw_session *s) {
    json_t *all = json_array();
    for (int i = 0; i < s->mix.n; i++)
        json_array_append_new(all, gw_json_object("codec:s floats:I bytes:I", s->mix.codec[i].spec,
                                                  s->encoded[i].floats, s->encoded[i].bytes));
    return all;
}

json_t *gw_report_comm(const gw_session *s, const gw_codec_row *rows, const char *warning) {
    const gw_algo *algo = s->mix.algo;
    char name[128];
    gw_text_print(name, sizeof name, algo->stands_for ? "%s (modelled as halving:chunk=0)" : "%s",
                  algo->stands_for ? algo->stands_for : algo->ops->head.name);
    return gw_json_object(
        "strategy:s algorithm:s codec:s error_feedback:b clip:o unmet:o encoded:o notes:t layers:o "
        "warning:t",
        s->strategy.ops->head.name, name, gw_session_compression(s), gw_session_feeds_back(s),
        gw_clip_json(&s->clip), gw_unmet_json(&s->unmet), report_encoded(s), s->notes.lines,
        report_codecs(rows, s->env.n_layers), warning);
}

gw_err gw_report_choices(const char *dir, const gw_session *session) {
    const char *rows = session->notes.choices;
    if (!rows)
        return GW_OK;
    gw_file *file = NULL;
    GW_TRY(gw_file_create(&file, dir, "algo.csv"));
    fprintf(gw_file_stream(file), GW_TUNING_HEADER "%s", rows);
    return gw_file_commit(&file);
}
