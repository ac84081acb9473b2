/* Time of arithmetic on a virtual clock. */
#include "play/spend.h"

#include "comm/fabric/sim.h"
#include "nn/gemm.h"

/* Messages under way are polled between the pieces that the kernel has computed. */
static void spend_computed(void *ctx, gw_computed what, int l, size_t n) {
    gw_spender *s = ctx;
    double one_s = what == GW_COMPUTED_UPDATE ? s->times.update_s : s->times.of[what][l];
    double each_s = one_s * (double)n / s->speed / (1 + s->pieces);
    for (; s->poll && s->pieces > 0; s->pieces--) {
        gw_sim_compute(s->fabric, each_s);
        s->poll(s->of);
    }
    gw_sim_compute(s->fabric, each_s);
}

/* A rank that is held up looks at no message meanwhile. */
static void spend_rest(void *ctx, double seconds) {
    gw_sim_compute(((gw_spender *)ctx)->fabric, seconds);
}

static void spend_piece(void *ctx) {
    ((gw_spender *)ctx)->pieces++;
}

static void spend_between(void *ctx, void (*poll)(void *of), void *of) {
    gw_spender *s = ctx;
    gw_gemm_between(poll ? spend_piece : NULL, s);
    s->pieces = 0;
    s->poll = poll;
    s->of = of;
}

void gw_spender_open(gw_spender *s) {
    s->exec =
        (gw_exec){.ctx = s, .spend = spend_computed, .rest = spend_rest, .between = spend_between};
}

/* ---- by a profile ---- */

/* A profile does not tell the gradient of a layer's input from that of its weights: each takes half
 * of its time, and the first layer has no input's. */
gw_err gw_profile_times(gw_step_times *out, const gw_step_profile *of, const gw_model *model) {
    const gw_shard *shard = gw_model_shard(model);
    int group = -1;
    *out = (gw_step_times){.update_s = of->optimizer_s / (double)of->n};
    if (of->n != shard->whole)
        return gw_fail(
            GW_ERR_INPUT,
            "simulate: --step-profile: %s has %zu parameters, and the model has %zu: give "
            "the profile of this model, or none",
            of->model, of->n, shard->whole);
    for (int number = 0, l = 0; number < gw_model_spec_layers(&shard->spec); number++) {
        gw_unit u = gw_model_spec_unit(&shard->spec, number);
        size_t whole = 0;
        for (int i = 0; i < u.n_tensors; i++)
            whole += (size_t)u.tensor[i].rows * (size_t)u.tensor[i].cols;
        group += whole > 0;
        if (group >= of->groups)
            return gw_fail(GW_ERR_INPUT,
                           "simulate: --step-profile: %s has %d groups: give one in which "
                           "each layer is a group, as of `bench layers`",
                           of->model, of->groups);
        while (l < shard->n_layers && shard->layers[l].number < number)
            l++;
        if (whole == 0 || l == shard->n_layers || shard->layers[l].number != number)
            continue;
        double part = (double)shard->layers[l].layer.span.n / (double)whole / (double)of->batch;
        for (const gw_step_tensor *t = of->tensor; t < of->tensor + of->n_tensors; t++)
            if (t->group == group) {
                out->of[GW_COMPUTED_FORWARD][l] += part * t->forward_s;
                out->of[GW_COMPUTED_WEIGHTS][l] += part * t->backward_s / (number == 0 ? 1 : 2);
                out->of[GW_COMPUTED_INPUT][l] += number == 0 ? 0 : part * t->backward_s / 2;
            }
    }
    return GW_OK;
}
