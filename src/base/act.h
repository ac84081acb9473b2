/** What a stage of a pipe does, and what it sends. */
#ifndef GW_BASE_ACT_H
#define GW_BASE_ACT_H

/** One action of a stage. A microbatch passes a chunk by F, then B; or by F, I, and later W: then
 *  the delta leaves early, and all deltas of the chunk's layers are kept from I to W. */
typedef enum gw_act_kind {
    GW_ACT_FORWARD,  /* F: from the chunk's input to its output */
    GW_ACT_BACKWARD, /* B: I and W as one, layer by layer; the delta leaves at its end */
    GW_ACT_INPUT,    /* I: from the output's delta to those of each layer and of the input */
    GW_ACT_WEIGHTS   /* W: the gradient of the weights, from the activations and the deltas */
} gw_act_kind;

/** F, B, I or W. */
static inline char gw_act_letter(gw_act_kind kind) {
    return (unsigned)kind <= GW_ACT_WEIGHTS ? "FBIW"[kind] : '?';
}

/** In every kind, microbatches pass each chunk in ascending order, so gradients are summed in the
 *  same order under every timetable. A chunk's activation of microbatch j is held from F to
 *  W (or B), in slot j % n of the chunk, where n is gw_timetable_slots(), or one more if the next
 *  microbatch is received meanwhile. */
typedef struct gw_act {
    gw_act_kind kind;
    int chunk, micro;
} gw_act;

/** Hops to the next stage, and back. */
typedef enum gw_hop_kind { GW_HOP_ACTIVATION, GW_HOP_DELTA, GW_HOP_KINDS } gw_hop_kind;

#endif
