/* A plugin of all five kinds, built for another abi. tests/unit/test_plugins.c shares these
 * structs, corrects the abi and leaves out one hook after another. */
#include "comm/algo.h"
#include "comm/pipeline/timetable.h"
#include "comm/strategy.h"
#include "optim/optimizer.h"

static gw_err open(void *self, const gw_env *env) {
    (void)self, (void)env;
    return GW_OK;
}

static void close(void *self) {
    (void)self;
}

static gw_err finish(void *self, gw_span s, gw_update *u) {
    (void)self, (void)s, (void)u;
    return GW_OK;
}

static gw_cost strategy_cost(const void *self, int64_t exchange, int64_t *period) {
    (void)self, (void)exchange, (void)period;
    return (gw_cost){0};
}

static gw_err lay_down(const gw_args *args, gw_schedule *s, gw_verb what, int root) {
    (void)args, (void)s, (void)what, (void)root;
    return GW_OK;
}

static gw_cost algo_cost(const gw_args *args, gw_lane *lane, gw_verb what, size_t n) {
    (void)args, (void)lane, (void)what, (void)n;
    return (gw_cost){0};
}

static size_t bound(const void *self, size_t n) {
    (void)self;
    return n;
}

static gw_err encode(const void *self, gw_turn turn, const float *x, size_t n, void *out,
                     size_t cap, size_t *len) {
    (void)self, (void)turn, (void)x, (void)n, (void)out, (void)cap;
    *len = 0;
    return GW_OK;
}

static gw_err decode(const void *self, const void *in, size_t len, float *y, size_t n,
                     gw_into into) {
    (void)self, (void)in, (void)len, (void)y, (void)n, (void)into;
    return GW_OK;
}

static gw_err lay_down_stage(const gw_args *args, gw_timetable *t, int stage) {
    (void)args, (void)t, (void)stage;
    return GW_OK;
}

static double bubble(const gw_args *args, int stages, const gw_act_cost *cost) {
    (void)args, (void)stages, (void)cost;
    return 0;
}

static int held(const gw_args *args, int stages, int micro, int stage) {
    (void)args, (void)stages, (void)micro, (void)stage;
    return 0;
}

static const char *const *vectors(const void *self) {
    (void)self;
    return NULL;
}

static void update(const void *self, const gw_optimizer_part *part) {
    (void)self, (void)part;
}

static const gw_opt algo_option[] = {GW_STRATEGY_ALGO, {0}};

extern gw_strategy_ops gw_strategy_plugin;
extern gw_algo_ops gw_algo_plugin;
extern gw_codec_ops gw_codec_plugin;
extern gw_timetable_ops gw_timetable_plugin;
extern gw_optimizer_ops gw_optimizer_plugin;

gw_strategy_ops gw_strategy_plugin = {
    .head = {GW_STRATEGY_ABI + 1, "lame", "a strategy that does nothing", algo_option},
    .gives = GW_GIVES_MEAN,
    .open = open,
    .close = close,
    .finish = finish,
    .cost = strategy_cost};
gw_algo_ops gw_algo_plugin = {
    .head = {GW_ALGO_ABI + 1, "lame", "an algorithm of no messages", NULL},
    .lay_down = lay_down,
    .cost = algo_cost};
gw_codec_ops gw_codec_plugin = {
    .head = {GW_CODEC_ABI + 1, "lame", "a codec that sends nothing", NULL},
    .bound = bound,
    .encode = encode,
    .decode = decode};
gw_timetable_ops gw_timetable_plugin = {
    .head = {GW_TIMETABLE_ABI + 1, "lame", "a timetable of no actions", NULL},
    .lay_down = lay_down_stage,
    .bubble = bubble,
    .held = held};
gw_optimizer_ops gw_optimizer_plugin = {
    .head = {GW_OPTIMIZER_ABI + 1, "lame", "an optimizer that stays where it is", NULL},
    .vectors = vectors,
    .update = update};
