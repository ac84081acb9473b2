/* What bench overlap tells of its cells. */
#include "cli/bench/bench_overlap_parts.h"

#include "nn/gemm.h"

#include <math.h>
#include <stdio.h>

const char *const gw_bench_progress_names[] = {
    [GW_PROGRESS_POLL] = "poll", [GW_PROGRESS_THREAD] = "thread", [GW_PROGRESS_NONE] = "none"};

static const char *const figure_names[FIGURES] = {
    [COMM] = "comm",   [COMP] = "comp", [BOTH] = "both",     [EXPOSED] = "exposed",
    [POST] = "post",   [POLL] = "poll", [HIDDEN] = "hidden", [INTERFERENCE] = "interference",
    [SAVED] = "saved",
};

void gw_bench_overlap_head(const overlap_setting *o) {
    gw_bench_place_say(o->place, "overlap of an allreduce with computation");
    if (o->place->nodes == 1 && o->place->ranks > 1)
        printf("note: one node: a transfer is the ranks' own copying, which nothing can hide\n");
    if (o->place->crowded && !o->place->oversubscribed)
        printf("note: with progress=thread there are more threads than cores: those times say "
               "little\n");
    printf("compute kernel: product of %d x %d matrices, %.1f us, by %s\n\n", o->edge, o->edge,
           o->kernel_s * 1e6, gw_gemm_library());
    printf("%10s  %-14s %-12s %-8s %10s %10s %10s %7s %15s %10s %10s %10s %10s %10s %7s\n", "bytes",
           "algorithm", "codec", "progress", "comm us", "comp us", "both us", "hidden",
           "95% interval", "saved us", "interf. us", "exposed us", "transp. us", "bound us",
           "x bound");
}

/* All of computation and of what the exchange takes of the core, or the exchange alone. */
static double bound_of(const cell *c, const gw_stats *s) {
    double transport_s = isnan(c->transport_s) ? 0 : c->transport_s;
    return fmax(s[COMP].median + transport_s, s[COMM].median);
}

static void print_cell(const overlap_setting *o, const cell *c, size_t bytes, const gw_stats *s) {
    char hidden[16] = "-", interval[32] = "-";
    if (o->place->ranks > 1) {
        snprintf(hidden, sizeof hidden, "%.3f", s[HIDDEN].median);
        if (isfinite(s[HIDDEN].ci_low))
            snprintf(interval, sizeof interval, "%.2f .. %.2f", s[HIDDEN].ci_low,
                     s[HIDDEN].ci_high);
    }
    printf("%10zu  %-14s %-12s %-8s %10.1f %10.1f %10.1f %7s %15s %10.1f %10.1f %10.1f", bytes,
           c->x.spec, c->x.wire->spec, gw_bench_progress_names[c->mode], s[COMM].median * 1e6,
           s[COMP].median * 1e6, s[BOTH].median * 1e6, hidden, interval, s[SAVED].median * 1e6,
           s[INTERFERENCE].median * 1e6, s[EXPOSED].median * 1e6);
    if (isnan(c->transport_s))
        printf(" %10s", "-");
    else
        printf(" %10.1f", c->transport_s * 1e6);
    printf(" %10.1f %7.2f\n", bound_of(c, s) * 1e6, s[BOTH].median / bound_of(c, s));
    if (s[COMP].median < s[COMM].median && o->compute_ratio >= 1 && o->place->ranks > 1)
        printf("%10s  note: computation was shorter than communication: not all could hide\n", "");
}

static json_t *cell_json(const overlap_setting *o, const cell *c, size_t bytes, const gw_stats *s) {
    json_t *one =
        json_pack("{s:I, s:s, s:s, s:s, s:i, s:i, s:I}", "bytes", (json_int_t)bytes, "algorithm",
                  c->x.spec, "codec", c->x.wire->spec, "progress", gw_bench_progress_names[c->mode],
                  "kernels", c->kernels, "repeats", o->repeats, "wrong", (json_int_t)c->wrong);
    for (int f = 0; f < FIGURES; f++) {
        bool blank = f == HIDDEN && o->place->ranks == 1;
        json_t *all = json_array();
        for (int i = 0; i < c->samples[f].n && !blank; i++)
            json_array_append_new(all, gw_bench_number(c->samples[f].x[i]));
        const double value[] = {s[f].median, s[f].ci_low, s[f].ci_high};
        const char *const suffix[] = {"", "_ci_low", "_ci_high"};
        const char *unit = f == HIDDEN ? "" : "_s";
        char key[64];
        for (int v = 0; v < 3; v++) {
            snprintf(key, sizeof key, "%s%s%s", figure_names[f], suffix[v], unit);
            json_object_set_new(one, key, gw_bench_number(blank ? NAN : value[v]));
        }
        snprintf(key, sizeof key, "%s_rounds%s", figure_names[f], unit);
        json_object_set_new(one, key, all);
    }
    json_object_set_new(one, "transport_s", gw_bench_number(c->transport_s));
    json_object_set_new(one, "bound_s", gw_bench_number(bound_of(c, s)));
    json_object_set_new(one, "over_bound", gw_bench_number(s[BOTH].median / bound_of(c, s)));
    return one;
}

gw_err gw_bench_overlap_row(const overlap_setting *o, const cell *c, size_t bytes, json_t *rows) {
    gw_stats s[FIGURES];
    for (int f = 0; f < FIGURES; f++)
        GW_TRY(gw_samples_stats(&c->samples[f], &s[f]));
    print_cell(o, c, bytes, s);
    json_array_append_new(rows, cell_json(o, c, bytes, s));
    fflush(stdout);
    return GW_OK;
}
