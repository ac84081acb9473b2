#include "predict/layout.h"

#include <stdio.h>
#include <string.h>

/* Some layer of each chunk, and some neuron of each layer, on every rank. */
static bool layout_divides(const gw_layout_space *s, const gw_layout *l, int chunks) {
    gw_share share = gw_share_whole(s->spec);
    gw_shard shard;
    share.tensor = l->shape.size[GW_DIM_TENSOR];
    share.split = l->split;
    return l->shape.size[GW_DIM_PIPE] * chunks <= gw_model_spec_layers(s->spec) &&
           !(s->whole && share.tensor > 1) && gw_shard_of(&shard, s->spec, &share) == GW_OK;
}

/* Add it if it fits. */
static gw_err layout_try(const gw_layout_space *s, const gw_layout *l, gw_layout *out, int *n) {
    gw_timetable *t = NULL;
    int stages = l->shape.size[GW_DIM_PIPE], data = l->shape.size[GW_DIM_DATA];
    if (l->micro > (s->batch + data - 1) / data)
        return GW_OK;
    gw_err e = gw_timetable_open(&t, l->timetable, stages, l->micro);
    if (e == GW_OK && layout_divides(s, l, gw_timetable_chunks(t))) {
        if (*n < GW_LAYOUTS)
            out[(*n)++] = *l;
        else
            e = gw_fail(GW_ERR_USAGE,
                        "plan: --mesh: more than %d ways: name one, or fewer --timetables or "
                        "--microbatches",
                        GW_LAYOUTS);
    }
    gw_timetable_close(t);
    return e == GW_ERR_UNSUPPORTED ? GW_OK : e;
}

static int layout_fewest(const gw_layout_space *s) {
    int least = s->micros[0];
    for (int i = 1; i < s->n_micros; i++)
        least = s->micros[i] < least ? s->micros[i] : least;
    return least;
}

static gw_err layout_try_orders(const gw_layout_space *s, gw_layout *l, gw_layout *out, int *n) {
    l->timetable = NULL;
    l->micro = layout_fewest(s);
    if (l->shape.size[GW_DIM_PIPE] == 1)
        return layout_try(s, l, out, n);
    for (l->timetable = s->timetables; l->timetable; l->timetable = l->timetable->next)
        for (int i = 0; i < s->n_micros; i++) {
            l->micro = s->micros[i];
            GW_TRY(layout_try(s, l, out, n));
        }
    return GW_OK;
}

static gw_err layout_try_mesh(const gw_layout_space *s, const gw_mesh_shape *shape, gw_layout *out,
                              int *n) {
    gw_layout l = {.shape = *shape};
    if (shape->size[GW_DIM_DATA] > s->batch)
        return GW_OK;
    GW_TRY(layout_try_orders(s, &l, out, n));
    l.split = GW_SPLIT_COLUMNS;
    return shape->size[GW_DIM_TENSOR] > 1 ? layout_try_orders(s, &l, out, n) : GW_OK;
}

gw_err gw_layouts_list(const gw_layout_space *s, gw_layout *out, int *n) {
    *n = 0;
    for (int pipe = 1; pipe <= s->ranks; pipe++)
        for (int tensor = 1; tensor * pipe <= s->ranks; tensor++) {
            int data = s->ranks / (pipe * tensor);
            gw_mesh_shape shape = {.size = {data, pipe, tensor},
                                   .order = {GW_DIM_PIPE, GW_DIM_DATA, GW_DIM_TENSOR}};
            if (data * pipe * tensor != s->ranks)
                continue;
            if (s->shape) {
                const int *size = s->shape->size;
                if (size[GW_DIM_PIPE] != pipe || size[GW_DIM_TENSOR] != tensor ||
                    (size[GW_DIM_DATA] != 0 && size[GW_DIM_DATA] != data))
                    continue;
                memcpy(shape.order, s->shape->order, sizeof shape.order);
            }
            GW_TRY(layout_try_mesh(s, &shape, out, n));
        }
    return GW_OK;
}

bool gw_layout_plain(const gw_layout *l) {
    return !gw_mesh_divides(&l->shape) && l->micro == 1;
}

void gw_layout_mesh(const gw_layout *l, char out[GW_LAYOUT_TEXT]) {
    gw_mesh_text(&l->shape, out, GW_LAYOUT_TEXT);
    if (!*out)
        snprintf(out, GW_LAYOUT_TEXT, "data=1");
}
