/* powersgd: of each layer's matrix of gradients a few factors travel in its place, P (rows x r) and
 * R (cols x r), in two allreduces; their product is the update, and what it lacks is kept and added
 * to the next gradient (T. Vogels, S. P. Karimireddy, M. Jaggi, "PowerSGD: Practical low-rank
 * gradient compression for distributed optimization", NeurIPS 2019; the arithmetic is
 * compress/lowrank.h). One step of power iteration a step of training: R of the last step is what
 * the next one starts from (warm=on), so the factors follow the largest singular vectors of the
 * gradients as these change slowly.
 *
 * It cannot be a codec: P has to be summed over the ranks and made orthonormal before R can be
 * computed. But unlike most codecs the factors are plain floats that any algorithm sums. Biases,
 * and matrices that r factors would not make smaller, travel as they are with the first allreduce.
 * Synchronous; not exact. On one rank nothing is sent, so nothing is compressed.
 *
 * Cost: one allreduce of r * rows a matrix and of all else, then one of r * cols a matrix: at r = 2
 * 0.33 bits an element of 784 x 256. With --update lazy two a layer. */
#include "comm/factors.h"

#include <string.h>

static gw_err powersgd_open(void *p, const gw_env *env) {
    gw_factors_setup setup = {.stream = 0x706f776572u,
                              .feedback = strcmp(gw_args_text(env->args, "feedback"), "on") == 0,
                              .cold = strcmp(gw_args_text(env->args, "warm"), "off") == 0};
    return gw_factors_open(p, env, &setup);
}

static gw_err powersgd_finish(void *p, gw_span s, gw_update *u) {
    gw_factors *me = p;
    gw_factors_group *g;
    (void)u;
    if (me->n_groups == 0) /* one rank: nothing to exchange */
        return GW_OK;
    GW_TRY(gw_factors_sum(me, s, &g));
    gw_factors_hand_out(me, g);
    return GW_OK;
}

static const gw_opt opts[] = {GW_FACTORS_RANK("2"),
                              {"feedback", GW_OPT_CHOICE, "on", 0, 0, "on|off", NULL,
                               "add what the factors dropped to the next gradient"},
                              {"warm", GW_OPT_CHOICE, "on", 0, 0, "on|off", NULL,
                               "start from the factors of the last step instead of random ones"},
                              GW_STRATEGY_ALGO,
                              {0}};

const gw_strategy_ops gw_strategy_powersgd = {
    .head = {GW_STRATEGY_ABI, "powersgd",
             "low-rank factors of each weight matrix, in two small allreduces; error feedback",
             opts},
    .gives = GW_GIVES_MEAN,
    .traits = GW_STRATEGY_LOSSY,
    .shape = GW_SHAPE_WHOLE,
    .formula = GW_FACTORS_FORMULA,
    .plan = gw_factors_plan,
    .size = sizeof(gw_factors),
    .open = powersgd_open,
    .close = gw_factors_close,
    .finish = powersgd_finish,
    .state = gw_factors_state,
    .cost = gw_factors_cost,
    .most = GW_FACTORS_MOST,
};
