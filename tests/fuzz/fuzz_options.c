/* Every little language of options and of the files that they name. An input's first character says
 * which (the keys of `languages` below), the rest is the text. Each is understood, or refused as
 * gw_fuzz_answer wants it. */
#include "../play.h"
#include "harness.h"

#include "base/mem.h"
#include "cli/bench/bench.h"
#include "cli/cli.h"
#include "comm/fabric/fabric.h"
#include "comm/pipeline/timetable.h"
#include "comm/schedule/transfers.h"
#include "comm/strategy.h"
#include "comm/tuning.h"
#include "config/delay.h"
#include "counters/group.h"
#include "data/division.h"
#include "data/raw.h"
#include "mpi/mesh.h"
#include "predict/chooser.h"
#include "roofline/ceilings_file.h"
#include "run/session.h"

#include <string.h>

extern const gw_command gw_command_train, gw_command_eval;

static const char *const words[] = {"--",          "--lr",
                                    "--layers",    "--comm",
                                    "--compress",  "--inject-skew",
                                    "--out",       "=",
                                    ",",           ";",
                                    "+",           "(",
                                    ")",           "((((",
                                    "topk",        "qsgd",
                                    "zlib",        "auto",
                                    "none",        "allreduce",
                                    "sparse",      "algo=",
                                    "ring",        "chunk=",
                                    "bucket=",     "layer0=",
                                    "min_bytes=",  "ratio=",
                                    "bits=",       "codecs=(",
                                    "algos=(",     "64K",
                                    "1G",          "9999999999999",
                                    "1e999",       "-1",
                                    "nan",         "0x10",
                                    "samples=",    "features=",
                                    "\n",          "\n\n",
                                    "group x\n",   "event a b ",
                                    " = ",         "| ",
                                    "memory ",     "figure f = ",
                                    "cpu ",        "min(",
                                    "max(",        "..",
                                    "\"seconds\"", "null",
                                    "[",           "{",
                                    "\xff",        "\xc2\x9b",
                                    "./p.so",      "ranks,lane",
                                    "none,none,",  "1:1ms",
                                    "hier",        "table=",
                                    "\"threads\"", "steps=",
                                    "every=",      "--checkpoint-every",
                                    "--mesh",      "--timetable",
                                    "pipe=",       "tensor=",
                                    "data=",       "interleaved:chunks=",
                                    "--output",    "--init",
                                    "he,xavier",   "--limit",
                                    "--replicate", "--image-size",
                                    "56x58",       "x",
                                    NULL};

/* ---- command lines ---- */

enum { WORDS = 40 };

/* The lines of `text` as argv[1..]. */
static int split(char *text, char *name, char **argv) {
    int argc = 0;
    argv[argc++] = name;
    for (char *rest = text, *word; argc < WORDS && (word = strsep(&rest, "\n")) != NULL;)
        argv[argc++] = word;
    argv[argc] = NULL;
    return argc;
}

static void read_words(char *text) {
    static const gw_opt table[] = {{"flag", GW_OPT_FLAG, NULL, 0, 0, NULL, NULL, ""},
                                   {"int", GW_OPT_INT, "3", -5, 1e12, NULL, NULL, ""},
                                   {"free", GW_OPT_INT, NULL, 0, 0, NULL, NULL, ""},
                                   {"real", GW_OPT_REAL, "0.5", 0, 1, NULL, NULL, ""},
                                   {"bytes", GW_OPT_BYTES, "4K", 1, 0x1p50, NULL, NULL, ""},
                                   {"choice", GW_OPT_CHOICE, "b", 0, 0, "a|b|abc", NULL, ""},
                                   {"text", GW_OPT_TEXT, NULL, 0, 0, NULL, NULL, ""},
                                   {"path", GW_OPT_PATH, NULL, 0, 0, NULL, NULL, ""},
                                   {"time", GW_OPT_TIME, "1ms", 1e-3, 60, NULL, NULL, ""},
                                   {"every", GW_OPT_EVERY, "5", 0.1, 1e6, NULL, NULL, ""},
                                   {"list", GW_OPT_LIST, "1,2", 1, 9, NULL, NULL, ""},
                                   {0}};
    char *argv[WORDS + 1];
    gw_args *args;
    int more, argc = split(text, (char *)"test", argv);
    MUST(gw_args_new(&args, table) == GW_OK);
    gw_err e = gw_args_argv(args, "test", argc, argv, argc % 2 ? &more : NULL);
    gw_fuzz_answer(e);
    MUST(gw_args_int(args, "int") >= -5 && gw_args_int(args, "int") <= 1000000000000);
    MUST(gw_args_real(args, "real") >= 0 && gw_args_real(args, "real") <= 1);
    MUST(gw_args_real(args, "time") >= 1e-3 && gw_args_real(args, "time") <= 60);
    MUST(gw_args_bytes(args, "bytes") >= 1 && gw_args_bytes(args, "bytes") <= UINT64_C(1) << 50);
    gw_fuzz_forget();
    gw_args_free(args);
    gw_delay delay;
    gw_err drawn = gw_delay_read(&delay, "train", argv[argc - 1]);
    gw_fuzz_answer(drawn);
    MUST(drawn != GW_OK || (delay.law && gw_delay_quantile(&delay, 0.5) >= 0));
    gw_division division;
    gw_fuzz_answer(gw_division_read(&division, argv[argc - 1]));
    gw_fuzz_forget();
    gw_spec *spec = NULL;
    gw_err read = gw_spec_parse(&spec, "test", "spec", argv[argc - 1], GW_SPEC_ONE);
    if (read == GW_OK)
        read = gw_args_of(&args, table, "test", spec);
    gw_fuzz_answer(read);
    if (read == GW_OK)
        gw_args_free(args);
    gw_spec_free(spec);
}

static void read_command(const gw_command *c, char *text) {
    char *argv[WORDS + 1];
    gw_args *args;
    int argc = split(text, (char *)c->name, argv);
    gw_err e = gw_cli_read(c, argc, argv, &args);
    gw_fuzz_answer(e);
    if (e == GW_OK)
        c->run(args, argc, argv);
    gw_args_free(args);
}

static void read_train(char *text) {
    read_command(&gw_command_train, text);
}

static void read_eval(char *text) {
    read_command(&gw_command_eval, text);
}

/* ---- specs ---- */

/* --comm, --compress and --error-feedback, a line each. */
static void read_session(char *text) {
    char *rest = text, *comm = strsep(&rest, "\n"), *compress = rest ? strsep(&rest, "\n") : NULL;
    gw_spec *entry = NULL, *list = NULL;
    gw_mix mix;
    gw_session *s = NULL;
    gw_chooser *choice = NULL;
    gw_err e = gw_spec_parse(&entry, "test", "comm", comm, GW_SPEC_ONE);
    if (e == GW_OK)
        e = gw_spec_parse(&list, "test", "compress", compress ? compress : "none", GW_SPEC_LIST);
    gw_train_config c = {.run.comm = entry,
                         .run.compress = list,
                         .run.feedback = rest && strlen(rest) < 8 ? "on" : "auto",
                         .run.wire_check = rest && *rest == 'w'};
    if (e == GW_OK)
        e = gw_mix_open(&mix, list, c.run.wire_check);
    if (e == GW_OK)
        e = gw_session_new(&s, entry, &mix, c.run.feedback);
    if (e == GW_OK)
        e = gw_chooser_open(&choice, s, &c, NULL, false);
    gw_fuzz_answer(e);
    gw_chooser_free(choice);
    gw_session_free(s);
    gw_spec_free(entry);
    gw_spec_free(list);
}

static void read_codec(char *text) {
    gw_spec *list = NULL;
    gw_codec c = {0};
    gw_err e = gw_spec_parse(&list, "test", "codec", text, GW_SPEC_LIST);
    if (e == GW_OK)
        e = gw_codec_open(&c, list->parts);
    gw_fuzz_answer(e);
    gw_codec_close(&c);
    gw_spec_free(list);
}

/* --mesh and --timetable, a line each. */
static void read_mesh(char *text) {
    char *rest = text, *mesh = strsep(&rest, "\n");
    gw_spec *list = NULL, *entry = NULL;
    gw_mesh_shape shape;
    gw_timetable *timetable = NULL;
    gw_err e = gw_spec_parse(&list, "test", "mesh", mesh, GW_SPEC_COMMAS);
    if (e == GW_OK)
        e = gw_mesh_parse(&shape, list);
    gw_fuzz_answer(e);
    for (int d = 0; e == GW_OK && d < GW_DIMS; d++)
        MUST(shape.size[d] >= (d != GW_DIM_DATA) && shape.size[d] <= 1 << 20);
    int stages = e == GW_OK ? 1 + shape.size[GW_DIM_PIPE] % 5 : 1;
    gw_fuzz_forget();
    e = gw_spec_parse(&entry, "test", "timetable", rest ? rest : "", GW_SPEC_ONE);
    if (e == GW_OK)
        e = gw_timetable_open(&timetable, entry, stages, 1 + (int)strlen(mesh) % 9);
    gw_fuzz_answer(e);
    gw_timetable_close(timetable);
    gw_spec_free(list);
    gw_spec_free(entry);
}

static void read_list(char *text) {
    for (gw_spec_form form = GW_SPEC_LIST; form <= GW_SPEC_COMMAS; form++) {
        gw_spec *list = NULL;
        gw_err e = gw_spec_parse(&list, "test", "list", text, form);
        gw_fuzz_answer(e);
        MUST(e != GW_OK || list->parts);
        for (const gw_spec *s = list ? list->parts : NULL; s; s = s->next)
            MUST(*s->text);
        gw_spec_free(list);
    }
}

static void read_sizes(char *text) {
    gw_bench_sizes sizes = {.n = 0};
    gw_err e = gw_bench_sizes_read(&sizes, text);
    gw_fuzz_answer(e);
    for (int i = 0; e == GW_OK && i < sizes.n; i++)
        MUST(sizes.bytes[i] % 4 == 0 && sizes.bytes[i] <= sizes.most);
}

static void read_synthetic(char *text) {
    gw_raw raw;
    char *spec = NULL;
    MUST(asprintf(&spec, "synthetic:%s", text) > 0);
    gw_err e = gw_synthetic_make(&raw, spec, true);
    free(spec);
    gw_fuzz_answer(e);
    if (e == GW_OK)
        MUST(raw.train.n >= 1 && raw.test.n >= 1 && raw.classes >= 2 && raw.cols >= 1);
    gw_raw_free(&raw);
}

/* ---- files that options name ---- */

static void read_group(char *text) {
    static gw_group_choice choice;
    static const gw_cpu cpu = {.vendor = "GenuineIntel", .family = 6, .model = 143};
    bool fits;
    gw_err e = gw_group_parse(&choice, &fits, &cpu, "x.grp", text);
    gw_fuzz_answer(e);
    for (int g = 0; e == GW_OK && g < choice.groups; g++) {
        const gw_group *group = &choice.group[g];
        double counts[GW_GROUP_EVENTS] = {1, 2, 0, 4, 5, 6, 7, 8};
        MUST(group->events >= 1 && group->events <= GW_GROUP_HARDWARE);
        if (group->memory.steps)
            (void)gw_expr_value(&group->memory, counts);
        for (int f = 0; f < group->figures; f++)
            (void)gw_expr_value(&group->figure[f].value, counts);
    }
}

static void read_expr(char *text) {
    static const char *const names[] = {"a", "b", "cycles"};
    static const double values[] = {1, 0, 3};
    gw_expr x;
    gw_err e = gw_expr_parse(&x, text, names, 3);
    gw_fuzz_answer(e);
    if (e == GW_OK)
        (void)gw_expr_value(&x, values);
}

static gw_fuzz_folder folder;

static void read_ceilings(char *text) {
    static const char right[] =
        "{\"gradwire_ceilings\":1,\"host\":\"h\",\"cpu\":\"c\",\"kernels\":\"k\",\"threads\":1,"
        "\"all_threads\":2,\"oversubscribed\":false,\"measured_at\":9,\"caches\":["
        "{\"bytes\":49152,\"cpus_sharing\":2},{\"bytes\":2097152,\"cpus_sharing\":2},"
        "{\"bytes\":0,\"cpus_sharing\":0}],\"fma_flops_per_s\":{\"one\":1e11,\"all\":null},"
        "\"copy_bytes_per_s\":{\"one\":1e10,\"all\":2e10},\"levels\":["
        "{\"working_set_bytes\":1,\"read_bytes_per_s\":{\"one\":1,\"all\":2},"
        "\"update_bytes_per_s\":{\"one\":1,\"all\":2}},"
        "{\"working_set_bytes\":1,\"read_bytes_per_s\":{\"one\":1,\"all\":2},"
        "\"update_bytes_per_s\":{\"one\":1,\"all\":2}},"
        "{\"working_set_bytes\":0,\"read_bytes_per_s\":{\"one\":null,\"all\":null},"
        "\"update_bytes_per_s\":{\"one\":null,\"all\":null}},"
        "{\"working_set_bytes\":1,\"read_bytes_per_s\":{\"one\":1,\"all\":2},"
        "\"update_bytes_per_s\":{\"one\":1,\"all\":2}}],\"seconds\":{\"x\":1.5}}\n";
    static gw_ceilings got;
    char path[128];
    size_t n = strlen(text);
    char *edited = *text == '{' ? NULL : gw_fuzz_edited(right, (uint8_t *)text, n, words);
    gw_fuzz_folder_put(&folder, 0, edited ? edited : text, strlen(edited ? edited : text));
    free(edited);
    snprintf(path, sizeof path, "%s/%s", folder.path, folder.name[0]);
    gw_err e = gw_ceilings_load(&got, path);
    gw_fuzz_answer(e);
    if (e != GW_OK)
        return;
    gw_ceilings here = {.host = "h", .cpu = "c", .kernels = "k", .threads = 1, .all_threads = 2};
    gw_fuzz_forget();
    gw_fuzz_answer(gw_ceilings_fit(&got, &here, false, path));
    MUST(got.threads >= 1 && got.all_threads >= 1 && got.n_times <= GW_CEILING_TIMES);
    json_t *again = gw_ceilings_json(&got);
    MUST(again);
    json_decref(again);
}

static gw_err two_agree(gw_fabric *f, gw_err mine) {
    (void)f;
    return mine;
}

static void two_close(gw_fabric *f) {
    (void)f;
}

/* Rank 0 of two, whose other one is nobody. */
static gw_lane *open_lane(gw_codec *codec) {
    static const gw_fabric_ops ops = {.agree = two_agree, .close = two_close};
    static int lanes;
    static gw_fabric two = {.ops = &ops, .size = 2, .lanes = &lanes};
    gw_lane_setup setup = {.codec = codec, .name = "gradients"};
    gw_lane *lane;
    MUST(gw_lane_open_on(&lane, &two, &setup) == GW_OK);
    return lane;
}

static void read_tuning(char *text) {
    static gw_codec exact;
    gw_tuning t;
    MUST(gw_codec_open(&exact, &gw_codec_exact) == GW_OK);
    gw_algo self;
    MUST(gw_algo_open(&self, &GW_SPEC_NAMED("auto"), &exact) == GW_OK);
    gw_lane *lane = open_lane(&exact);
    gw_err e = gw_tuning_read(&t, lane, self.ops, "algo.csv", text);
    gw_fuzz_answer(e);
    for (size_t n = 1; e == GW_OK && n < (size_t)1 << 40; n *= 64) {
        int choice = gw_tuning_choice(&t, n);
        MUST(choice >= 0 && choice < t.n_algos);
    }
    gw_tuning_clear(&t);
    gw_lane_close(lane);
    gw_algo_close(&self);
    gw_codec_close(&exact);
}

static void read_schedule(char *text) {
    static const char right[] =
        "{\"gradwire_schedule\":1,\"about\":\"x\",\"ranks\":3,\"blocks\":3,\"rounds\":["
        "[{\"from\":0,\"to\":1,\"block\":1,\"count\":2,\"op\":\"add\"},"
        "{\"from\":2,\"to\":0,\"block\":0,\"op\":\"add\"}],"
        "[{\"from\":1,\"to\":2,\"block\":1,\"count\":2,\"op\":\"add\"},"
        "{\"from\":1,\"to\":0,\"block\":0,\"op\":\"add\"}],"
        "[{\"from\":2,\"to\":1,\"block\":1,\"count\":2,\"op\":\"set\"},"
        "{\"from\":0,\"to\":1,\"block\":0,\"op\":\"set\"},"
        "{\"from\":0,\"to\":2,\"block\":0,\"op\":\"set\"}],"
        "[{\"from\":1,\"to\":0,\"block\":1,\"count\":2,\"op\":\"set\"}]]}";
    gw_transfers t;
    char *edited =
        *text == '{' ? NULL : gw_fuzz_edited(right, (uint8_t *)text, strlen(text), words);
    const char *whole = edited ? edited : text;
    gw_err e = gw_transfers_read(&t, "x.json", whole, strlen(whole));
    gw_fuzz_answer(e);
    MUST(e == GW_OK || *text);
    MUST(e != GW_OK || !play_fits(&t) || play(&t));
    gw_transfers_clear(&t);
    free(edited);
}

/* ---- all ---- */

static const struct {
    char key;
    void (*read)(char *text);
} languages[] = {{'a', read_words},   {'t', read_train},     {'e', read_eval},
                 {'s', read_session}, {'o', read_codec},     {'l', read_list},
                 {'z', read_sizes},   {'y', read_synthetic}, {'g', read_group},
                 {'x', read_expr},    {'c', read_ceilings},  {'u', read_tuning},
                 {'m', read_mesh},    {'f', read_schedule}};
enum { LANGUAGES = sizeof languages / sizeof *languages };

static void open_all(const char *spec) {
    static const char *const name[] = {"ceilings.json"};
    (void)spec;
    gw_fuzz_folder_open(&folder, name, 1);
}

static void close_all(void) {
    gw_fuzz_folder_close(&folder);
}

static void one(const uint8_t *data, size_t size) {
    if (size < 1)
        return;
    int which = data[0] % LANGUAGES;
    for (int i = 0; i < LANGUAGES; i++)
        which = languages[i].key == data[0] ? i : which;
    char *text = malloc(size);
    MUST(text);
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    gw_fuzz_forget();
    languages[which].read(text);
    free(text);
}

const gw_fuzz_target gw_fuzz_options = {.name = "options",
                                        .mutations = 200000,
                                        .words = words,
                                        .open = open_all,
                                        .close = close_all,
                                        .one = one};
