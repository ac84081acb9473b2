/* The tensors of a profile, of a model whose layers were timed. */
#include "base/json.h"
#include "nn/shard.h"
#include "play/profile.h"

#include <math.h>
#include <stdio.h>

static double profile_deviation(const float *x, size_t n) {
    double sum = 0, squares = 0;
    for (size_t i = 0; x && i < n; i++) {
        sum += x[i];
        squares += (double)x[i] * x[i];
    }
    return x ? sqrt(fmax(0, squares / (double)n - sum / (double)n * (sum / (double)n))) : 1;
}

/* A layer without parameters counts to the one below that has some, and so do those below all. */
static void profile_of_groups(const gw_shard *whole, const double *layer_s, double *group_s) {
    int owner = 0;
    while (gw_shard_unit(whole, &whole->layers[owner]).n_tensors == 0)
        owner++;
    for (int l = 0; l < whole->n_layers; l++) {
        owner = gw_shard_unit(whole, &whole->layers[l]).n_tensors > 0 && l > owner ? l : owner;
        group_s[owner] += layer_s[l];
    }
}

/* What tensor ranks divide of tensor i of a layer, and exchange at its first and last one, as
 * gw_model_join says. */
static void profile_share(json_t *row, const gw_shard *shared, int l, int i, bool columns) {
    gw_unit u = gw_shard_unit(shared, &shared->layers[l]);
    bool sums = u.cut != GW_CUT_COLUMNS, top = l + 1 == shared->n_layers;
    gw_json_add(row, "shard:i", u.tensor[i].cut == GW_CUT_COLUMNS && u.tensor[i].rows > 1);
    if (i == 0 && sums)
        gw_json_add(row, "forward_sum:i", u.out);
    if (i == 0 && u.cut != GW_CUT_ROWS && l > 0)
        gw_json_add(row, columns ? "input_parts:i" : "backward_sum:i", u.in);
    if (i + 1 == u.n_tensors && top && !sums)
        gw_json_add(row, "forward_gather:i", GW_LOSS_TOLD * gw_model_spec_targets(&shared->spec));
}

json_t *gw_step_profile_tensors(const gw_model_spec *spec, bool columns, const double *forward_s,
                                const double *backward_s, const float *grads) {
    double of_group_s[2][GW_MAX_LAYERS] = {{0}};
    gw_shard whole, shared;
    gw_share share = gw_share_whole(spec);
    json_t *all = json_array();
    if (gw_shard_of(&whole, spec, &share) != GW_OK)
        return all;
    share.tensor = 2;
    share.split = columns ? GW_SPLIT_COLUMNS : GW_SPLIT_PAIRS;
    bool shares = gw_shard_of(&shared, spec, &share) == GW_OK;
    profile_of_groups(&whole, forward_s, of_group_s[0]);
    profile_of_groups(&whole, backward_s, of_group_s[1]);
    json_t *before = NULL;
    for (int l = 0, number = 0, group = 0; l < whole.n_layers; l++) {
        gw_unit u = gw_shard_unit(&whole, &whole.layers[l]);
        if (u.n_tensors > 0 && before) /* behind a layer, what the next one reads */
            gw_json_add(before, "activation:i", gw_model_spec_width(spec, l - 1));
        for (int i = 0; i < u.n_tensors; i++, number++) {
            int rows = u.tensor[i].rows, cols = u.tensor[i].cols;
            size_t n = (size_t)rows * (size_t)cols;
            char name[32];
            snprintf(name, sizeof name, "layer%d.%d", l, number);
            before = gw_json_object(
                "name:s shape:o group:i forward_s:f backward_s:f std:f", name,
                rows > 1 ? json_pack("[i, i]", rows, cols) : json_pack("[i]", cols), group,
                i == 0 ? of_group_s[0][l] : 0, i + 1 == u.n_tensors ? of_group_s[1][l] : 0,
                profile_deviation(grads, n));
            if (shares)
                profile_share(before, &shared, l, i, columns);
            grads = grads ? grads + n : NULL;
            json_array_append_new(all, before);
        }
        group += u.n_tensors > 0;
    }
    return all;
}
