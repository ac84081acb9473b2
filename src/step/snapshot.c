#include "step/snapshot.h"

#include <stdlib.h>
#include <string.h>

/* The exchange first: it drains, and what was in flight may end in the parameters. */
static gw_err snapshot_state(gw_stepper *t, gw_io *io) {
    GW_TRY(gw_inside_state(t->g, io));
    GW_TRY(gw_optimizer_state(t->optimizer, io));
    return gw_io_field(io, "parameters", gw_model_params(t->model),
                       gw_model_size(t->model) * sizeof(float));
}

gw_err gw_snapshot_take(gw_snapshot *s, gw_stepper *t) {
    gw_io *io = NULL;
    GW_TRY(gw_io_keep(&io, &s->memory));
    return gw_io_end(io, snapshot_state(t, io));
}

gw_err gw_snapshot_put(gw_snapshot *s, gw_stepper *t) {
    gw_io *io = NULL;
    GW_TRY(gw_io_recall(&io, &s->memory));
    return gw_io_end(io, snapshot_state(t, io));
}

bool gw_snapshot_same(const gw_snapshot *a, const gw_snapshot *b) {
    return a->memory.bytes == b->memory.bytes &&
           memcmp(a->memory.data, b->memory.data, a->memory.bytes) == 0;
}

void gw_snapshot_free(gw_snapshot *s) {
    free(s->memory.data);
    *s = (gw_snapshot){0};
}
