#include "comm/strategy.h"

#include <string.h>

#define X(name) extern const gw_strategy_ops gw_strategy_##name;
#include "comm/strategies.def"
#undef X

static const gw_entry *const entries[] = {
#define X(name) &gw_strategy_##name.head,
#include "comm/strategies.def"
#undef X
    NULL,
};

const gw_registry gw_strategies = {
    .kind = "strategy", .symbol = "gw_strategy_plugin", .abi = GW_STRATEGY_ABI, .entries = entries};

gw_err gw_strategy_find(gw_strategy *out, const char *spec) {
    const gw_entry *entry = NULL;
    gw_args *args = NULL;
    GW_TRY(gw_registry_find(&gw_strategies, spec, &entry, &args));
    *out = (gw_strategy){(const gw_strategy_ops *)entry, args}; /* head is the first member */
    return GW_OK;
}

void gw_strategy_free(gw_strategy *s) {
    gw_args_free(s->args);
    memset(s, 0, sizeof *s);
}
