/* 1f1b: one forward, one backward in turn, after as many forwards as there are stages behind.
 * D. Narayanan et al., "PipeDream: Generalized pipeline parallelism for DNN training", SOSP 2019;
 * without stale weights, as here, "Efficient large-scale language model training on GPU clusters
 * using Megatron-LM", SC 2021.
 *
 * Waits as long as gpipe, (p-1)(F+B), but stage s holds only p-s activations. It pays with its
 * slack: a hop's time shows each way in every turn. With `eager` a stage runs twice as far ahead,
 * so hops hide as in gpipe, and holds 2(p-s)-1. */
#include "comm/pipeline/timetable.h"

static int one_f_one_b_ahead(const gw_args *args, int stages, int stage) {
    return (gw_args_flag(args, "eager") ? 2 : 1) * (stages - 1 - stage);
}

static gw_err one_f_one_b_lay_down(const gw_args *args, gw_timetable *t, int stage) {
    int micro = gw_timetable_micro(t);
    int ahead = one_f_one_b_ahead(args, gw_timetable_stages(t), stage);
    for (int k = 0; k < micro + ahead; k++) { /* turn k: F of microbatch k, B of k - ahead */
        if (k < micro)
            GW_TRY(gw_timetable_add(t, GW_ACT_FORWARD, 0));
        if (k >= ahead)
            GW_TRY(gw_timetable_add(t, GW_ACT_BACKWARD, 0));
    }
    return GW_OK;
}

static double one_f_one_b_bubble(const gw_args *args, int stages, const gw_act_cost *cost) {
    (void)args;
    return (stages - 1) * (cost->forward_s + cost->input_s + cost->weights_s);
}

static int one_f_one_b_held(const gw_args *args, int stages, int micro, int stage) {
    int held = one_f_one_b_ahead(args, stages, stage) + 1;
    return held < micro ? held : micro;
}

static const gw_opt one_f_one_b_opts[] = {
    {"eager", GW_OPT_FLAG, NULL, 0, 0, NULL, NULL,
     "run twice as far ahead: hides hops, holds min(2(p-s)-1, m)"},
    {0}};

const gw_timetable_ops gw_timetable_1f1b = {
    .head = {GW_TIMETABLE_ABI, "1f1b", "one forward, one backward in turn", one_f_one_b_opts},
    .idle_formula = "(p-1)(F+B)",
    .held_formula = "min(p-s, m)",
    .lay_down = one_f_one_b_lay_down,
    .bubble = one_f_one_b_bubble,
    .held = one_f_one_b_held,
};
