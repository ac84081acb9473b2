/* A strategy out of the tree whose exchange never ends, for the watchdog's test. */
#include "comm/strategy.h"

#include <stdio.h>
#include <stdlib.h>
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
    const char *path = getenv("GW_TEST_STUCK"); /* a byte there from each rank that is stuck */
    FILE *to = path ? fopen(path, "a") : NULL;
    if (to && (fputc('s', to) == EOF || fclose(to) != 0))
        return gw_fail(GW_ERR_IO, "stuck: %s", path);
    while (sleep(1) == 0)
        continue;
    return gw_fail(GW_ERR_INTERNAL, "stuck: woken by a signal");
}

static gw_cost cost(const void *self, int64_t exchange, int64_t *period) {
    (void)self, (void)exchange, (void)period;
    return (gw_cost){0};
}

static const gw_opt opts[] = {GW_STRATEGY_ALGO, {0}};

const gw_strategy_ops gw_strategy_plugin = {
    .head = {GW_STRATEGY_ABI, "stuck", "an exchange that never ends", opts},
    .gives = GW_GIVES_MEAN,
    .formula = "nothing",
    .open = open_stuck,
    .close = close_stuck,
    .finish = finish,
    .cost = cost,
};
