/* gradwire eval: a saved model against a data set: accuracy, per-class metrics, confusion matrix.
 */
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/train/step_opts.h"
#include "nn/gemm.h"
#include "nn/model.h"
#include "train/evaluate.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { CHUNK = 256 };

static const gw_opt opts[] = {
    {"model", GW_OPT_TEXT, NULL, 0, 0, NULL, "DIR|FILE", "a run folder, or its model.gw"},
    {"plugin", GW_OPT_SPEC, NULL, 0, 0, NULL, "PATH", "path of the plugin, if the model is one"},
    {"export", GW_OPT_PATH, NULL, 0, 0, NULL, "FILE.safetensors",
     "write the model's tensors by name, and evaluate nothing"},
    {"data", GW_OPT_TEXT, "fashion-mnist", 0, 0, NULL, "SET",
     "fashion-mnist, a folder of four IDX files, or synthetic[:samples=..,features=..,...]"},
    {"limit-test", GW_OPT_INT, NULL, 1, UINT32_MAX, NULL, "N", "the first N test samples only"},
    {"image-scale", GW_OPT_INT, "1", 1, 16, NULL, "K", "enlarge images K times each way"},
    {"image-size", GW_OPT_TEXT, NULL, 0, 0, NULL, "ROWSxCOLS", "resize images, as in train"},
    {"threads", GW_OPT_INT, "1", 1, 4096, NULL, "N", "OpenMP threads per rank"},
    GW_GEMM_OPT("oneDNN where this program has it"),
    {0}};

static const gw_rule rules[] = {
    {"image-size", NULL, false, "image-scale", NULL, "each says how large images become"},
    {"export", NULL, false, "data", NULL, "it evaluates nothing"},
    {0}};

typedef struct job {
    const gw_args *args;
    char path[4096];
    gw_model *model;
    gw_pipeline *walk;
    gw_data *data;
    int64_t *confusion;
} job;

static gw_err eval_check_fit(const job *j) {
    const gw_model_spec *m = gw_model_get_spec(j->model);
    int features = gw_dataset_features(&j->data->test);
    if (m->inputs != features)
        return gw_fail(GW_ERR_INPUT,
                       "eval: the model has %d inputs, %s has %d features: is "
                       "--image-scale or --image-size the one of the training?",
                       m->inputs, j->data->name, features);
    if (m->classes < j->data->classes)
        return gw_fail(GW_ERR_INPUT, "eval: the model has %d classes, %s has %d", m->classes,
                       j->data->name, j->data->classes);
    return GW_OK;
}

static void eval_print(const job *j, const gw_evaluation *v) {
    int classes = gw_model_get_spec(j->model)->classes;
    static gw_class_metrics per[GW_MAX_CONFUSED];
    gw_class_metrics macro;
    double accuracy = gw_confusion_metrics(j->confusion, classes, per, &macro);
    printf("accuracy %.4f, loss %.4f, %u sample%s\n\n", accuracy, v->loss, j->data->test.n,
           j->data->test.n == 1 ? "" : "s");
    printf("%-8s %9s %9s %9s %9s\n", "class", "precision", "recall", "f1", "support");
    for (int c = 0; c < classes; c++)
        printf("%-8d %9.4f %9.4f %9.4f %9lld\n", c, per[c].precision, per[c].recall, per[c].f1,
               (long long)per[c].support);
    printf("%-8s %9.4f %9.4f %9.4f %9lld\n\n", "macro", macro.precision, macro.recall, macro.f1,
           (long long)macro.support);
    printf("confusion (row: true class, column: predicted)\n%6s", "");
    for (int c = 0; c < classes; c++)
        printf(" %6d", c);
    for (int r = 0; r < classes; r++) {
        printf("\n%6d", r);
        for (int c = 0; c < classes; c++)
            printf(" %6lld", (long long)j->confusion[(size_t)r * (size_t)classes + (size_t)c]);
    }
    printf("\n");
}

static gw_err eval_load(job *j) {
    const gw_spec *plugin = gw_args_spec(j->args, "plugin");
    GW_TRY(gw_model_load(&j->model, j->path, CHUNK, plugin));
    const char *model = gw_model_get_spec(j->model)->text; /* NAME:OPTIONS, or "" */
    if (plugin && !memchr(model, '/', strcspn(model, ":")))
        return gw_fail(GW_ERR_USAGE,
                       "eval: --plugin %s: the model in %s is not a plugin's: remove the option",
                       plugin->name, j->path);
    size_t classes = (size_t)gw_model_get_spec(j->model)->classes;
    if (classes > GW_MAX_CONFUSED)
        return gw_fail(GW_ERR_INPUT, "eval: %s: %zu classes, at most %d can be shown", j->path,
                       classes, GW_MAX_CONFUSED);
    return gw_alloc(&j->confusion, classes * classes, sizeof *j->confusion);
}

static gw_err eval_body(void *ctx, MPI_Comm comm, bool *own) {
    job *j = ctx;
    int rank, ranks;
    *own = false; /* every error is agreed on */
    GW_TRY(gw_comm_place(comm, &rank, &ranks));
    omp_set_num_threads((int)gw_args_int(j->args, "threads"));
    const char *to = gw_args_text(j->args, "export");
    GW_TRY(gw_agree(comm, eval_load(j)));
    if (to)
        return gw_agree(comm, rank == 0 ? gw_safetensors_write(j->model, to) : GW_OK);
    gw_data_spec spec = {.source = gw_args_text(j->args, "data"),
                         .context = gw_model_get_spec(j->model)->context,
                         .image_scale = (int)gw_args_int(j->args, "image-scale"),
                         .image_size = gw_args_text(j->args, "image-size"),
                         .limit_test = gw_args_int(j->args, "limit-test")};
    gw_err e = gw_data_open(&j->data, &spec, comm);
    GW_THEN(e, gw_agree(comm, eval_check_fit(j)));
    GW_THEN(e, gw_agree(comm, gw_pipeline_open_whole(&j->walk, j->model, NULL)));
    gw_evaluation v;
    gw_evaluator by = {.model = j->model,
                       .pipeline = j->walk,
                       .chunk = CHUNK,
                       .part = rank,
                       .parts = ranks,
                       .comm = comm};
    GW_THEN(e, gw_evaluate(&by, &j->data->test, j->confusion, &v));
    if (e == GW_OK && rank == 0)
        eval_print(j, &v);
    gw_data_close(j->data);
    return e;
}

static gw_err eval_read_args(job *j) {
    GW_TRY(gw_gemm_allow(gw_args_text(j->args, "gemm")));
    const char *model = gw_args_text(j->args, "model");
    if (!model)
        return gw_fail(GW_ERR_USAGE, "eval: --model DIR|FILE is needed");
    const char *to = gw_args_text(j->args, "export"), *dot = to ? strrchr(to, '.') : NULL;
    if (to && !(dot && strcmp(dot, ".safetensors") == 0))
        return gw_fail(GW_ERR_USAGE, "eval: --export %s: the file is named FILE.safetensors", to);
    struct stat st;
    bool folder = stat(model, &st) == 0 && S_ISDIR(st.st_mode);
    int len = snprintf(j->path, sizeof j->path, "%s%s", model, folder ? "/model.gw" : "");
    if (len < 0 || (size_t)len >= sizeof j->path)
        return gw_fail(GW_ERR_USAGE, "eval: model: the path is too long");
    return GW_OK;
}

static int eval_run(const gw_args *args, int argc, char **argv) {
    (void)argc, (void)argv;
    job j = {.args = args};
    gw_err e = eval_read_args(&j);
    gw_cli_told told = {.command = "eval", .args = args, .file = j.path};
    int status = gw_cli_parallel(&told, MPI_THREAD_FUNNELED, e, eval_body, &j);
    gw_pipeline_close(j.walk);
    gw_pipeline_free(j.walk);
    free(j.confusion);
    gw_model_close(j.model);
    return status;
}

const gw_command gw_command_eval = {
    .name = "eval",
    .summary = "evaluate a saved model: accuracy, precision, recall, F1, confusion matrix",
    .usage = "--model DIR|FILE [options]",
    .opts = opts,
    .rules = rules,
    .run = eval_run,
};
