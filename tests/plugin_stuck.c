/* A strategy out of the tree whose exchange never ends, for the watchdog's test. */
#include "comm/strategy.h"

#include <unistd.h>

static gw_err open_stuck(void *self, const gw_env *env) {
    (void)self, (void)env;
    return GW_OK;
}

static void close_stuck(void *self) {
    (void)self;
}

static gw_err finish(void *self, gw_span s, gw_update *u) {
    (void)self, (void)s, (void)u;
    while (sleep(1) == 0)
        continue;
    return gw_fail(GW_ERR_INTERNAL, "stuck: woken by a signal");
}

static gw_cost cost(const void *self, int64_t exchange) {
    (void)self, (void)exchange;
    return (gw_cost){0};
}

static const gw_opt opts[] = {GW_STRATEGY_ALGO, {0}};

const gw_strategy_ops gw_strategy_plugin = {
    .head = {GW_STRATEGY_ABI, "stuck", "an exchange that never ends", opts},
    .traits = GW_STRATEGY_SYNCHRONOUS,
    .formula = "nothing",
    .open = open_stuck,
    .close = close_stuck,
    .finish = finish,
    .cost = cost,
};
