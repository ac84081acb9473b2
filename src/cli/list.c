/* gradwire list: what the registries hold, out of the tables that parse the options. */
#include "base/json.h"
#include "cli/cli.h"
#include "cli/tools.h"
#include "comm/pipeline/timetable.h"
#include "comm/strategy.h"
#include "config/delay.h"
#include "data/division.h"
#include "nn/model_ops.h"
#include "optim/lr.h"
#include "optim/optimizer.h"
#include "run/residuals.h"

#include <math.h>

static const gw_opt opts[] = {{"json", GW_OPT_FLAG, NULL, 0, 0, NULL, NULL,
                               "print these, and the commands with their options, as JSON"},
                              {0}};

/* ---- what an entry states beyond its name, summary and options ---- */

typedef struct part {
    const char *key;
    const gw_registry *registry;
    const char *option; /* how a user names one of them */
} part;

static const part parts[] = {
    {"strategies", &gw_strategies, "--comm NAME:option=value,.."},
    {"algorithms", &gw_algos, "option algo=NAME of a strategy"},
    {"codecs", &gw_codecs, "--compress NAME:option=value,.."},
    {"feedbacks", &gw_feedbacks, "--error-feedback NAME:option=value,.."},
    {"timetables", &gw_timetables, "--timetable NAME:option=value,.."},
    {"models", &gw_models, "--model NAME:option=value,.."},
    {"optimizers", &gw_optimizers, "--optimizer NAME:option=value,.."},
    {"schedules", &gw_lr_schedules, "--lr-schedule NAME:option=value,.."},
    {"partitions", &gw_divisions, "--partition NAME:option=value,.."},
    {"delays", &gw_delays, "--inject-skew RANK:NAME:option=value,.."},
};
enum { PARTS = sizeof parts / sizeof *parts };

/* The head of an entry is the first member of what its registry holds. */
static gw_err list_state(const gw_registry *of, const gw_entry *e, json_t **out) {
    const void *ops = e;
    const gw_strategy_ops *strategy = ops;
    const gw_timetable_ops *timetable = ops;
    const gw_model_ops *model = ops;
    const gw_optimizer_ops *optimizer = ops;
    if (of == &gw_codecs) { /* with its default options */
        gw_codec c;
        GW_TRY(gw_codec_open(&c, &GW_SPEC_NAMED(e->name)));
        double bits = gw_codec_bits(&c, 1 << 20);
        const char *error = c.caps & GW_CODEC_LOSSLESS   ? "none"
                            : c.caps & GW_CODEC_UNBIASED ? "unbiased"
                            : c.caps & GW_CODEC_BIASED   ? "biased"
                                                         : "rounding";
        *out = gw_json_object("bits_per_element:f error:s sparse:b mpi_sums:b stage:b",
                              bits > 0 ? bits : NAN, error, (c.caps & GW_CODEC_SPARSE) != 0,
                              gw_codec_summable(&c), c.ops->pack != NULL);
        gw_codec_close(&c);
    } else if (of == &gw_strategies)
        *out = gw_json_object("synchronous:b exact:b shape:s mean:b directs:b sends:s",
                              gw_strategy_synchronous(strategy), gw_strategy_exact(strategy),
                              gw_strategy_shape_name(strategy),
                              strategy->gives == GW_GIVES_MEAN || strategy->gives == GW_GIVES_LATE,
                              strategy->gives == GW_GIVES_DIRECTION, strategy->formula);
    else if (of == &gw_algos)
        *out = gw_json_object("sends:s", ((const gw_algo_ops *)ops)->formula);
    else if (of == &gw_timetables)
        *out = gw_json_object("idle:s held:s", timetable->idle_formula, timetable->held_formula);
    else if (of == &gw_models)
        *out = gw_json_object("tensor_parallel:b",
                              (model->traits & (GW_MODEL_DENSE | GW_MODEL_SHARES)) != 0);
    else if (of == &gw_optimizers)
        *out = gw_json_object("moves:s",
                              optimizer->traits & GW_OPTIMIZER_TENSORS ? "tensors" : "elements");
    else if (of == &gw_lr_schedules)
        *out = gw_json_object("ends:b", ((const gw_lr_ops *)ops)->ends);
    else
        *out = json_object();
    return GW_OK;
}

/* ---- as text ---- */

static bool list_holds(const json_t *o, const char *key) {
    return json_is_true(json_object_get(o, key));
}

static void list_print_traits(const char *name, const json_t *o) {
    const json_t *sends = json_object_get(o, "sends"), *error = json_object_get(o, "error"),
                 *bits = json_object_get(o, "bits_per_element"), *idle = json_object_get(o, "idle"),
                 *held = json_object_get(o, "held"), *moves = json_object_get(o, "moves");
    printf("      ");
    if (json_object_get(o, "synchronous"))
        printf("%s, %s, shape %s; ",
               list_holds(o, "synchronous") ? "synchronous" : "not synchronous",
               list_holds(o, "exact") ? "exact" : "not exact",
               json_string_value(json_object_get(o, "shape")));
    if (list_holds(o, "directs"))
        printf("directs; ");
    if (sends)
        printf("sends %s", json_string_value(sends));
    if (json_is_real(bits))
        printf("%.3g bits per element, ", json_real_value(bits));
    if (error)
        printf("error: %s", json_string_value(error));
    if (idle)
        printf("idle %s, holds %s", json_string_value(idle), json_string_value(held));
    if (moves)
        printf("moves %s", json_string_value(moves));
    if (json_object_get(o, "ends"))
        printf("%s", list_holds(o, "ends") ? "ends with the run" : "has no end");
    if (json_object_get(o, "tensor_parallel"))
        printf("%s", list_holds(o, "tensor_parallel") ? "tensor ranks can share its layers"
                                                      : "no tensor parallelism");
    printf("%s%s", list_holds(o, "sparse") ? ", sparse" : "",
           list_holds(o, "mpi_sums") ? ", MPI can sum it" : "");
    if (list_holds(o, "stage"))
        printf(", also as a stage: CODEC+%s", name);
    printf("\n");
}

static gw_err list_print_text(void) {
    for (int i = 0; i < PARTS; i++) {
        printf("%s (%s):\n", parts[i].key, parts[i].option);
        for (const gw_entry *const *e = parts[i].registry->entries; *e; e++) {
            json_t *traits = NULL;
            GW_TRY(list_state(parts[i].registry, *e, &traits));
            printf("  %-12s %s\n", (*e)->name, (*e)->summary);
            if (json_object_size(traits) > 0)
                list_print_traits((*e)->name, traits);
            json_decref(traits);
            for (const gw_opt *o = (*e)->opts; o && o->name; o++) {
                const gw_opt one[] = {*o, {0}};
                gw_args_help(one, "      :", stdout);
            }
        }
        printf("\n");
    }
    printf("sends: bytes and messages that all P ranks together hand to MPI, in each step "
           "(strategies)\n"
           "or each allreduce (algorithms); n: parameters, b: bytes of their encoding.\n"
           "synchronous: replicas are equal after every step. exact: with an exact codec every "
           "update\n"
           "is that of a serial run. directs: hands out the direction of an update, which sgd\n"
           "without momentum applies. Bits and error of a codec are those of its default options;\n"
           "biased: --error-feedback auto turns error feedback on.\n"
           "idle: seconds that a stage waits in a step, with equal stages, free hops and m >= p;\n"
           "holds: activations of a microbatch at stage s, at most; p: stages, m: microbatches,\n"
           "v: chunks; F, I, W: seconds of a microbatch forward, back to the input, and for the\n"
           "weights; B: I + W.\n"
           "A plugin is named by its path. Rules choose codecs for some tensors:\n"
           "--compress 'topk;layer2=none;min_bytes=4K'; in programs that name their tensors:\n"
           "--compress 'topk;*.bias=none'.\n");
    return GW_OK;
}

/* ---- as JSON ---- */

static json_t *list_described(const char *name, const char *summary, const gw_opt *options) {
    json_t *all = json_array();
    for (const gw_opt *o = options; o && o->name; o++)
        json_array_append_new(all, gw_json_object("name:s value:s default:s help:s", o->name,
                                                  gw_opt_meta(o), o->def, o->help));
    return gw_json_object("name:s summary:s options:o", name, summary, all);
}

/* A rule about one value, not about all but some. */
static bool list_names(const gw_rule *r) {
    return r->other_value && *r->other_value != '!';
}

/* By command, and by option: the others that it, or some value of it, needs or excludes. */
static json_t *list_rules_json(bool needs) {
    json_t *all = json_object();
    for (const gw_command *const *c = gw_commands; *c; c++) {
        json_t *of = json_object();
        for (const gw_rule *r = (*c)->rules; r && r->option; r++) {
            json_t *others = json_object_get(of, r->option);
            if (r->needs == needs && !others)
                json_object_set_new(of, r->option, others = json_array());
            if (r->needs == needs)
                json_array_append_new(others,
                                      json_sprintf("--%s%s%s", r->other, list_names(r) ? " " : "",
                                                   list_names(r) ? r->other_value : ""));
        }
        json_object_set_new(all, (*c)->name, of);
    }
    return all;
}

static gw_err list_fill(json_t *document) {
    for (int i = 0; i < PARTS; i++) {
        json_t *all = json_array();
        json_object_set_new(document, parts[i].key, all);
        for (const gw_entry *const *e = parts[i].registry->entries; *e; e++) {
            json_t *traits = NULL;
            GW_TRY(list_state(parts[i].registry, *e, &traits));
            json_object_update_new(traits, list_described((*e)->name, (*e)->summary, (*e)->opts));
            json_array_append_new(all, traits);
        }
    }
    json_t *all = json_array();
    json_object_set_new(document, "commands", all);
    for (const gw_command *const *c = gw_commands; *c; c++)
        json_array_append_new(all, list_described((*c)->name, (*c)->summary, (*c)->opts));
    gw_tool tools[GW_TOOLS_MOST];
    size_t n;
    GW_TRY(gw_tools_find(tools, &n));
    json_object_set_new(document, "tools", all = json_array());
    for (size_t i = 0; i < n; i++)
        json_array_append_new(all, list_described(tools[i].name, tools[i].summary, NULL));
    return GW_OK;
}

static gw_err list_print_json(void) {
    json_t *document = gw_json_object("schema:i needs:o excludes:o", 1, list_rules_json(true),
                                      list_rules_json(false));
    gw_err e = list_fill(document);
    if (e == GW_OK && json_dumpf(document, stdout, JSON_INDENT(2)) != 0)
        e = gw_fail(GW_ERR_NOMEM, "list: out of memory");
    printf("\n");
    json_decref(document);
    return e;
}

static int list_run(const gw_args *args, int argc, char **argv) {
    (void)argc, (void)argv;
    gw_err e = gw_args_flag(args, "json") ? list_print_json() : list_print_text();
    return e == GW_OK ? 0 : gw_cli_refuse(e);
}

const gw_command gw_command_list = {
    .name = "list",
    .summary = "list strategies, algorithms, codecs, timetables, models, optimizers, schedules "
               "and options",
    .usage = "[options]",
    .opts = opts,
    .run = list_run,
};
