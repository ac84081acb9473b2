/* auto: the algorithm that is fastest here for spans of each size.
 *
 *  1. When a lane's first collective is laid down, every algorithm of the registry that carries its
 *     codec sums spans of 4 KiB, 64 KiB, 1 MiB and 8 MiB (up to the arena's size), for `budget`
 *     seconds in all. Each round runs all algorithms, in random order, with a barrier before each:
 *     ranks that one algorithm delayed do not slow the next. A time is the median of the slowest
 *     rank's times. Sizes left when the time is up take the choice of the largest one measured.
 *  2. A span uses the fastest algorithm for the size nearest by ratio, also for other collectives.
 *
 * All ranks decide by the same reduced times, so they agree. The choice is noted in the run's
 * report and written to algo.csv of its folder; `table=FILE` reads the choices from there instead,
 * to repeat a run exactly: another algorithm adds in another order. Bytes and messages: those of
 * the chosen algorithm. Choosing collectives by measuring: Vadhiyar, Fagg, Dongarra, "Automatically
 * tuned collective communications", SC 2000. */
#include "comm/algo.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/text.h"
#include "comm/channel.h"
#include "comm/tuning.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void auto_release(void *p) {
    gw_tuning_clear(p);
    free(p);
}

static const char *auto_size_text(double bytes, char text[24]) {
    int unit = 0;
    for (; bytes >= 1024 && unit < 3; unit++)
        bytes /= 1024;
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB"};
    snprintf(text, 24, "%.3g %s", bytes, units[unit]);
    return text;
}

static const char *auto_name(const gw_tuning *t, int a) {
    return t->algo[a].ops->head.name;
}

static const char *auto_lane_name(const gw_lane *lane) {
    const char *name = gw_lane_encoder(lane)->of->name;
    return name ? name : "lane";
}

static void auto_note_choice(gw_lane *lane, const gw_tuning *t, const char *source) {
    char line[512], size[24];
    int at = gw_text_print(line, sizeof line, "auto, %s (%s):", auto_lane_name(lane),
                           gw_lane_codec(lane)->name);
    bool split = false;
    for (int i = 0; i < t->n_sizes && at < (int)sizeof line; i++) {
        const gw_tuning_row *row = &t->row[i];
        bool last = i + 1 == t->n_sizes;
        if (!last && row[1].chosen == row->chosen)
            continue;
        const char *name = auto_name(t, row->chosen);
        size_t left = sizeof line - (size_t)at;
        if (last)
            at += gw_text_print(line + at, left, split ? " above %s" : " %s for all sizes", name);
        else
            at += gw_text_print(
                line + at, left, " up to %s %s,",
                auto_size_text(sqrt((double)row->bytes * (double)row[1].bytes), size), name);
        split = true;
    }
    if (at < (int)sizeof line)
        gw_text_print(line + at, sizeof line - (size_t)at, "; %s", source);
    gw_lane_note(lane, line);
}

static void auto_note_times(gw_lane *lane, const gw_tuning *t) {
    for (int i = 0; i < t->n_sizes; i++) {
        char line[1024], size[24];
        const gw_tuning_row *row = &t->row[i];
        int at = gw_text_print(line, sizeof line, "auto, %s (%s), %s in us:", auto_lane_name(lane),
                               gw_lane_codec(lane)->name, auto_size_text((double)row->bytes, size));
        for (int a = 0; a < t->n_algos && at < (int)sizeof line; a++)
            if (!isnan(row->time_s[a]))
                at += gw_text_print(line + at, sizeof line - (size_t)at, " %s %.4g",
                                    auto_name(t, a), row->time_s[a] * 1e6);
        gw_lane_note(lane, line);
    }
}

extern const gw_algo_ops gw_algo_auto;

/* Only rank 0 reads: all ranks see one file, and an error is reported once. */
static gw_err auto_read_table(gw_tuning *t, gw_lane *lane, const char *path) {
    enum { MOST = 1 << 20 };
    char *text = NULL;
    size_t len = 0;
    gw_fabric *f = gw_lane_channel(lane)->fabric;
    gw_err e = gw_lane_rank(lane) == 0 ? gw_file_read(path, MOST, &text, &len) : GW_OK;
    e = gw_lane_agree(lane, e);
    if (e != GW_OK)
        return e;
    uint64_t bytes = len + 1;
    GW_TRY(f->ops->bcast(f, &bytes, sizeof bytes, 0));
    if (gw_lane_rank(lane) != 0)
        e = gw_alloc(&text, (size_t)bytes, 1);
    e = gw_lane_agree(lane, e);
    GW_THEN(e, f->ops->bcast(f, text, (size_t)bytes, 0));
    if (e == GW_OK && strlen(text) + 1 != bytes)
        e = gw_fail(GW_ERR_INPUT, "algo=auto: table %s: not text: it holds a zero byte", path);
    GW_THEN(e, gw_lane_agree(lane, gw_tuning_read(t, lane, &gw_algo_auto, path, text)));
    free(text);
    return e;
}

static gw_err auto_make_table(const gw_args *args, gw_lane *lane, gw_tuning *t) {
    const char *path = gw_args_text(args, "table");
    char *rows = NULL;
    const char *before = gw_lane_table(lane);
    if (before) {
        const char *source = "of the checkpoint";
        GW_TRY(gw_lane_agree(lane, gw_tuning_read(t, lane, &gw_algo_auto, source, before)));
        auto_note_choice(lane, t, "as before the restart");
    } else if (*path) {
        GW_TRY(auto_read_table(t, lane, path));
        auto_note_choice(lane, t, "as its table says");
    } else {
        double budget_s = gw_args_real(args, "budget");
        GW_TRY(gw_tuning_measure(t, lane, &gw_algo_auto,
                                 gw_lane_yields(lane) ? budget_s / 3 : budget_s));
        auto_note_choice(lane, t, "measured at the start");
        auto_note_times(lane, t);
    }
    GW_TRY(gw_tuning_print(t, lane, &rows));
    gw_err e = gw_lane_choices(lane, rows);
    free(rows);
    return e;
}

/* Collective at the first call on a lane. */
static gw_err auto_table(const gw_args *args, gw_lane *lane, gw_tuning **out) {
    *out = gw_lane_attached(lane, args);
    if (*out)
        return GW_OK;
    gw_tuning *t = NULL;
    GW_TRY(gw_alloc(&t, 1, sizeof *t));
    gw_err e = auto_make_table(args, lane, t);
    if (e != GW_OK) {
        auto_release(t);
        return e;
    }
    GW_TRY(gw_lane_attach(lane, args, t, auto_release));
    *out = t;
    return GW_OK;
}

static gw_err auto_lay_down(const gw_args *args, gw_schedule *s, gw_verb what, int root) {
    gw_lane *lane = gw_schedule_lane(s);
    gw_span span = gw_schedule_span(s);
    gw_tuning *t;
    GW_TRY(auto_table(args, lane, &t));
    return gw_algo_lay_down(&t->algo[gw_tuning_choice(t, span.n)], s, what, root);
}

static gw_cost auto_cost(const gw_args *args, gw_lane *lane, gw_verb what, size_t n) {
    gw_tuning *t;
    if (auto_table(args, lane, &t) != GW_OK)
        return (gw_cost){0};
    return gw_algo_cost(&t->algo[gw_tuning_choice(t, n)], lane, what, n);
}

static const gw_opt auto_opts[] = {
    {"table", GW_OPT_TEXT, "", 0, 0, NULL, "FILE",
     "choose as in algo.csv of an earlier run, without measuring"},
    {"budget", GW_OPT_REAL, "0.3", 1e-3, 60, NULL, "SECONDS",
     "measuring time per lane (a third of it where ranks share cores)"},
    {0}};

const gw_algo_ops gw_algo_auto = {
    .head = {GW_ALGO_ABI, "auto",
             "measures all algorithms at the start and takes the fastest for each size", auto_opts},
    .caps = GW_ALGO_SHARED | GW_ALGO_ORDERED,
    .verbs = ~0u,
    .formula = "what the chosen algorithm sends",
    .lay_down = auto_lay_down,
    .cost = auto_cost,
};
