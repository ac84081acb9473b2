/* interleaved: 1f1b over several chunks a stage. D. Narayanan et al., "Efficient large-scale
 * language model training on GPU clusters using Megatron-LM", SC 2021, section 2.2.
 *
 * A turn is the work of one chunk, so filling and draining the pipe takes 1/v of the time: a stage
 * waits (p-1)(F+B)/v, for v times as many hops. Groups of p microbatches pass one chunk after
 * another: turn k forward is of chunk (k / p) % v, and backward of the one as far from the end. So
 * m must be a multiple of p. */
#include "comm/pipeline/timetable.h"

#include <stdio.h>

static const char *interleaved_refuses(const gw_args *args, int stages, int micro) {
    static _Thread_local char why[128];
    (void)args;
    if (micro % stages == 0)
        return NULL;
    snprintf(why, sizeof why, "%d microbatch%s on %d stages: give a multiple of %d", micro,
             micro == 1 ? "" : "es", stages, stages);
    return why;
}

static int interleaved_chunks(const gw_args *args) {
    return (int)gw_args_int(args, "chunks");
}

/* Forward turns before the first backward one. */
static int interleaved_ahead(int stages, int chunks, int stage) {
    return 2 * (stages - 1 - stage) + (chunks - 1) * stages;
}

static gw_err interleaved_lay_down(const gw_args *args, gw_timetable *t, int stage) {
    int stages = gw_timetable_stages(t), chunks = interleaved_chunks(args);
    int turns = gw_timetable_micro(t) * chunks, ahead = interleaved_ahead(stages, chunks, stage);
    for (int k = 0; k < turns + ahead; k++) { /* turn k forward, turn k - ahead backward */
        if (k < turns)
            GW_TRY(gw_timetable_add(t, GW_ACT_FORWARD, k / stages % chunks));
        if (k >= ahead)
            GW_TRY(
                gw_timetable_add(t, GW_ACT_BACKWARD, chunks - 1 - (k - ahead) / stages % chunks));
    }
    return GW_OK;
}

static double interleaved_bubble(const gw_args *args, int stages, const gw_act_cost *cost) {
    return (stages - 1) * (cost->forward_s + cost->input_s + cost->weights_s) /
           interleaved_chunks(args);
}

static int interleaved_held(const gw_args *args, int stages, int micro, int stage) {
    int chunks = interleaved_chunks(args), all = micro * chunks;
    int held = interleaved_ahead(stages, chunks, stage) + 1;
    return held < all ? held : all;
}

static const gw_opt interleaved_opts[] = {
    {"chunks", GW_OPT_INT, "2", 1, 64, NULL, "V", "chunks of layers per stage (v)"}, {0}};

const gw_timetable_ops gw_timetable_interleaved = {
    .head = {GW_TIMETABLE_ABI, "interleaved", "1f1b over several chunks of layers per stage",
             interleaved_opts},
    .idle_formula = "(p-1)(F+B)/v",
    .held_formula = "min(2(p-s-1)+(v-1)p+1, mv) of a chunk each",
    .refuses = interleaved_refuses,
    .chunks = interleaved_chunks,
    .lay_down = interleaved_lay_down,
    .bubble = interleaved_bubble,
    .held = interleaved_held,
};
