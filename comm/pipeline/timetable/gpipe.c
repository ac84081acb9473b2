/* gpipe: all microbatches forward, then all backward. Y. Huang et al., "GPipe: Efficient training
 * of giant neural networks using pipeline parallelism", NeurIPS 2019.
 *
 * A stage waits while one microbatch passes the p-1 others both ways: (p-1)(F+B). Hops hide behind
 * the next microbatch, but for 2(p-1) of them. Holds the activations of all m. */
#include "comm/pipeline/timetable.h"

static gw_err gpipe_lay_down(const gw_args *args, gw_timetable *t, int stage) {
    (void)args, (void)stage;
    int micro = gw_timetable_micro(t);
    for (int j = 0; j < micro; j++)
        GW_TRY(gw_timetable_add(t, GW_ACT_FORWARD, 0));
    for (int j = 0; j < micro; j++)
        GW_TRY(gw_timetable_add(t, GW_ACT_BACKWARD, 0));
    return GW_OK;
}

static double gpipe_bubble(const gw_args *args, int stages, const gw_act_cost *cost) {
    (void)args;
    return (stages - 1) * (cost->forward_s + cost->input_s + cost->weights_s);
}

static int gpipe_held(const gw_args *args, int stages, int micro, int stage) {
    (void)args, (void)stages, (void)stage;
    return micro;
}

const gw_timetable_ops gw_timetable_gpipe = {
    .head = {GW_TIMETABLE_ABI, "gpipe", "all microbatches forward, then all backward", NULL},
    .idle_formula = "(p-1)(F+B)",
    .held_formula = "m",
    .lay_down = gpipe_lay_down,
    .bubble = gpipe_bubble,
    .held = gpipe_held,
};
