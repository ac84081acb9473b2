/* zb: 1f1b with its backward action cut in two: the delta leaves before the gradient of the weights
 * is computed, which fills what a stage would wait. P. Qi et al., "Zero bubble pipeline
 * parallelism", ICLR 2024: their ZB-H1, which holds no more than the first stage of 1f1b.
 *
 * Stage s computes W of microbatch j after I of j+s. It waits (p-1)(I + max(0, F-W)) and holds p
 * activations, and from I to W a delta for each layer. The first stage has nobody to send a delta
 * to: it computes I and W as one. */
#include "comm/pipeline/timetable.h"

static gw_err zb_lay_down(const gw_args *args, gw_timetable *t, int stage) {
    (void)args;
    int micro = gw_timetable_micro(t), last = gw_timetable_stages(t) - 1, ahead = last - stage;
    for (int k = 0; k < micro + last; k++) { /* turn k: F of k, I of k - ahead, W of k - last */
        if (k < micro)
            GW_TRY(gw_timetable_add(t, GW_ACT_FORWARD, 0));
        if (stage > 0 && k >= ahead && k < micro + ahead)
            GW_TRY(gw_timetable_add(t, GW_ACT_INPUT, 0));
        if (k >= last)
            GW_TRY(gw_timetable_add(t, stage > 0 ? GW_ACT_WEIGHTS : GW_ACT_BACKWARD, 0));
    }
    return GW_OK;
}

static double zb_bubble(const gw_args *args, int stages, const gw_act_cost *cost) {
    (void)args;
    double more = cost->forward_s - cost->weights_s;
    return (stages - 1) * (cost->input_s + (more > 0 ? more : 0));
}

static int zb_held(const gw_args *args, int stages, int micro, int stage) {
    (void)args, (void)stage;
    return stages < micro ? stages : micro;
}

const gw_timetable_ops gw_timetable_zb = {
    .head = {GW_TIMETABLE_ABI, "zb",
             "1f1b that sends each delta before it computes the weights' gradient (ZB-H1)", NULL},
    .idle_formula = "(p-1)(I + max(0, F-W))",
    .held_formula = "min(p, m)",
    .lay_down = zb_lay_down,
    .bubble = zb_bubble,
    .held = zb_held,
};
