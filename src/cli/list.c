/* gradwire list: what the registries hold, out of the tables that parse the options. */
#include "cli/cli.h"
#include "cli/parallel.h"
#include "comm/strategy.h"

#include <string.h>

/* What a strategy or an algorithm states beyond its entry. */
static void state_strategy(const gw_entry *e) {
    const gw_strategy_ops *ops = (const gw_strategy_ops *)e; /* head is the first member */
    printf("      %s, %s; a step: %s\n",
           ops->traits & GW_STRATEGY_SYNCHRONOUS ? "synchronous" : "not synchronous",
           ops->traits & GW_STRATEGY_EXACT ? "exact (as its codec)" : "not exact", ops->formula);
}

static void state_algo(const gw_entry *e) {
    const gw_algo_ops *ops = (const gw_algo_ops *)e; /* head is the first member */
    printf("      an allreduce: %s\n", ops->formula);
}

/* Of the codec with its default options. */
static void state_codec(const gw_entry *e) {
    static const struct {
        unsigned cap;
        const char *word;
    } words[] = {{GW_CODEC_LOSSLESS, "lossless"},
                 {GW_CODEC_UNBIASED, "unbiased"},
                 {GW_CODEC_BIASED, "biased: with error feedback"},
                 {GW_CODEC_SPARSE, "sparse"},
                 {GW_CODEC_FIXED, "fixed size"},
                 {GW_CODEC_LINEAR, "linear"}};
    gw_codec c;
    if (gw_codec_open(&c, e->name) != GW_OK) {
        printf("      cannot be used here: %s\n", gw_err_text());
        return;
    }
    const char *between = "      ";
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (c.caps & words[i].cap &&
            !(words[i].cap == GW_CODEC_UNBIASED && c.caps & GW_CODEC_LOSSLESS)) {
            printf("%s%s", between, words[i].word);
            between = ", ";
        }
    if (gw_codec_summable(&c))
        printf("%sMPI adds it as it is%s", between,
               gw_codec_agrees(&c) ? " (its ranks agree on a scale first)" : "");
    if (c.ops->pack)
        printf("; as a stage: CODEC+%s", e->name);
    printf("\n");
    gw_codec_close(&c);
}

static void print(const gw_registry *reg, const char *plural, const char *option,
                  void (*state)(const gw_entry *e)) {
    printf("%s (%s):\n", plural, option);
    for (const gw_entry *const *e = reg->entries; *e; e++) {
        printf("  %-12s %s\n", (*e)->name, (*e)->summary);
        if (state)
            state(*e);
        for (const gw_opt *o = (*e)->opts; o && o->name; o++) {
            const gw_opt one[] = {*o, {0}};
            printf("      ");
            gw_args_help(one, ":", stdout);
        }
    }
    printf("\n");
}

static int run(int argc, char **argv) {
    gw_args *none = NULL;
    gw_err e = gw_args_new(&none, NULL);
    if (e == GW_OK)
        e = gw_args_argv(none, "list", argc, argv, NULL);
    gw_args_free(none);
    if (e != GW_OK)
        return gw_cli_refuse(e);
    print(&gw_strategies, "strategies", "--comm NAME:option=value,..", state_strategy);
    print(&gw_algos, "algorithms", "option algo=NAME of a strategy", state_algo);
    print(&gw_codecs, "codecs", "--compress NAME:option=value,..", state_codec);
    printf("Bytes and messages are those handed to MPI by all P ranks together; n: parameters,\n"
           "b: bytes of their encoding. Synchronous: replicas agree after every step. Exact: each\n"
           "update is the one of a serial run. A plugin is named by its path. Tensors may have "
           "codecs\n"
           "of their own: --compress 'topk;layer2=none;min_bytes=4K'.\n");
    return 0;
}

const gw_command gw_command_list = {
    .name = "list",
    .summary = "strategies, algorithms and codecs with their options",
    .usage = "",
    .run = run,
};
