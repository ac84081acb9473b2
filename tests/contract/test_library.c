/* The contract of the library, through its header: a strategy (argv[2]) with every codec gives the
 * bits of the session that it stands on, eager and lazy, in the caller's memory and in its own.
 * Gradients that are summed in memory which the ranks lent each other give the same bits, and so do
 * those of an exchange that copies them. gradwire_update moves parameters to the bits that the
 * trainer's optimizer does. What an exact one hands out is the mean. A run that was saved continues
 * to the bit. A rule by names is the rule by layers that has the same tensors; of two the first
 * holds. */
#include "../mpi/client.h"
#include "../specs.h"
#include "comm/strategy.h"

#include <math.h>
#include <unistd.h>

enum { TENSORS = 4, GROUPS = 2, STEPS = 6, CUT = 3 };
static const size_t sizes[TENSORS] = {96, 12, 60, 5}, rows[TENSORS] = {8, 0, 12, 0};
static const int group_of[TENSORS] = {0, 0, 1, 1}, every[TENSORS] = {0, 1, 2, 3};
enum { N = 96 + 12 + 60 + 5 };
static const float rate = 0.05f;

typedef struct setting {
    const char *comm, *codec, *rule; /* rule: of gradwire_update; NULL: the caller's own */
    bool lazy, own;                  /* own: the library's memory for parameters and gradients */
    bool mean;                       /* gradients come as means, else scaled */
    bool lent;                       /* some of them in memory of this rank's that is lent, */
    bool in_place;                   /* and summed there */
} setting;

/* A caller's model. */
typedef struct model {
    float param[N], grad[N];
    size_t off[TENSORS];
} model;

static void model_make(model *m) {
    size_t off = 0;
    for (int t = 0; t < TENSORS; t++) {
        m->off[t] = off;
        off += sizes[t];
    }
    for (size_t i = 0; i < N; i++)
        m->param[i] = draw(0, 99, i);
}

static int global_samples(void) {
    return ranks * (ranks + 1) / 2;
}

static double share_of(int r) {
    return (double)(r + 1) / global_samples();
}

static void model_gradient(model *m, int step, bool mean) {
    float by = mean ? 1 : (float)share_of(me);
    for (size_t i = 0; i < N; i++)
        m->grad[i] = draw(step, me, i) * by;
}

/* ---- through the header ---- */

/* Memory for gradients of all tensors, and its file. */
static float *lent;
static int lent_file = -1;

/* Where the caller has a gradient: on each rank others lie in memory that is not lent. */
static float *grad_of(const setting *s, model *m, int t) {
    return (s->lent && (t + me) % 3 != 0 ? lent : m->grad) + m->off[t];
}

static int library_open(gradwire **g, const setting *s, model *m) {
    char words[1024], name[16];
    snprintf(words, sizeof words,
             "--comm '%s' --compress '%s' --update %s --gradient %s --profile off", s->comm,
             s->codec, s->lazy ? "lazy" : "eager", s->mean ? "mean" : "scaled");
    if (s->rule)
        strcat(strcat(words, " --optimizer "), s->rule);
    int e = gradwire_new(g, -1, words);
    if (e < 0)
        return e;
    for (int t = 0; t < TENSORS; t++) {
        snprintf(name, sizeof name, "t%d", t);
        ok(gradwire_tensor(*g, name, group_of[t], sizes[t], rows[t],
                           s->own ? NULL : m->param + m->off[t]));
    }
    e = gradwire_open(*g);
    if (e >= 0 && s->lent) {
        const char *says = gradwire_text(*g, "in_place");
        CHECK(strcmp(says, s->in_place ? "yes" : "no") == 0, "%s: in place: %s", words, says);
        CHECK(ok(gradwire_lend(*g, lent, sizeof(float[N]), lent_file)) == s->in_place, "%s: %s",
              words, gradwire_error());
    }
    return e;
}

static float *param_of(gradwire *g, const setting *s, model *m, int t) {
    return s->own ? gradwire_memory(g, t, GRADWIRE_PARAM) : m->param + m->off[t];
}

/* Parameters go where the exchange has them, or come back from there. */
static void library_swap(gradwire *g, const setting *s, model *m, bool in) {
    for (int t = 0; t < TENSORS && s->own; t++) {
        float *there = param_of(g, s, m, t), *here = m->param + m->off[t];
        memcpy(in ? there : here, in ? here : there, sizes[t] * sizeof(float));
    }
}

static void library_update(gradwire *g, const setting *s, model *m, int group) {
    int t, more = ok(gradwire_finish(g, group));
    size_t from, n;
    if (s->rule)
        ok(gradwire_update(g, group, rate));
    for (int i = 0; !s->rule && more && ok(gradwire_owned(g, i, &t, &from, &n)); i++) {
        float *p = param_of(g, s, m, t);
        const float *d = s->own ? gradwire_memory(g, t, GRADWIRE_GRAD) : grad_of(s, m, t);
        for (size_t k = from; k < from + n && (group == GRADWIRE_ALL || group_of[t] == group); k++)
            p[k] -= rate * d[k];
    }
    ok(gradwire_updated(g, group));
}

static void library_catch_up(gradwire *g, const setting *s, model *m) {
    for (int l = 0; l < GROUPS; l++) {
        library_update(g, s, m, l);
        ok(gradwire_await(g, l));
    }
}

static void library_step(gradwire *g, const setting *s, model *m, int step, bool last) {
    int order[TENSORS] = {3, 2, 1, 0};
    float *grads[TENSORS];
    ok(gradwire_begin(g, me + 1, global_samples()));
    if (s->lazy && step > 1 && step != CUT + 1)
        library_catch_up(g, s, m);
    ok(gradwire_phase(g, GRADWIRE_BACKWARD));
    model_gradient(m, step, s->mean);
    for (int i = 0; i < TENSORS; i++) {
        int t = order[i];
        const float *made = m->grad + m->off[t];
        grads[i] = grad_of(s, m, t);
        if (s->own || s->lent)
            memmove(s->own ? gradwire_memory(g, t, GRADWIRE_GRAD) : grads[i], made,
                    sizes[t] * sizeof(float));
    }
    ok(gradwire_ready(g, 1, order, s->own ? NULL : grads));
    ok(gradwire_poll(g));
    ok(gradwire_ready(g, 3, order + 1, s->own ? NULL : grads + 1));
    if (!s->lazy)
        library_update(g, s, m, GRADWIRE_ALL);
    else if (last)
        library_catch_up(g, s, m);
    ok(gradwire_end(g, 1.0));
}

/* False: it was refused, in one line. */
static bool library_run(const setting *s, model *m, bool cut) {
    gradwire *g = NULL;
    void *blob = NULL;
    size_t bytes = 0;
    model_make(m);
    if (library_open(&g, s, m) < 0) {
        says("");
        gradwire_close(g);
        return false;
    }
    library_swap(g, s, m, true);
    for (int step = 1; step <= STEPS; step++) {
        library_step(g, s, m, step, step == STEPS || step == CUT);
        if (step != CUT || !cut)
            continue;
        library_swap(g, s, m, false);
        ok(gradwire_save(g, &blob, &bytes));
        ok(gradwire_close(g));
        float kept[N];
        memcpy(kept, m->param, sizeof kept);
        ok(library_open(&g, s, m));
        ok(gradwire_load(g, blob, bytes));
        free(blob);
        memcpy(m->param, kept, sizeof kept); /* open has made them rank 0's */
        library_swap(g, s, m, true);
    }
    ok(gradwire_settle(g));
    library_swap(g, s, m, false);
    ok(gradwire_close(g));
    return true;
}

/* ---- the session itself ---- */

/* Summed in the order of the library's loops. */
static void rule_product(bool ta, bool tb, int m, int n, int k, const float *a, int lda,
                         const float *b, int ldb, float beta, float *c, int ldc) {
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            float sum = beta != 0 ? beta * c[i * ldc + j] : 0;
            for (int l = 0; l < k; l++)
                sum += a[ta ? l * lda + i : i * lda + l] * b[tb ? j * ldb + l : l * ldb + j];
            c[i * ldc + j] = sum;
        }
}

/* An optimizer as the trainer opens it, but for its products, which are those of the library. The
 * last two of the tensors, which must outlive it, are of the last layer. */
static gw_err open_rule(gw_optimizer **out, const char *text, const gw_tensor *tensors, int n) {
    gw_optimizer_setup setup = {.n = gw_span_end(tensors[n - 1].span),
                                .model = {tensors, n, .head = n - 2, .product = rule_product}};
    GW_TRY(keep_spec(&setup.spec, text, GW_SPEC_ONE));
    return gw_optimizer_open(out, &setup);
}

static gw_optimizer *rule; /* NULL: param -= rate * gradient */

static gw_err session_update(gw_session *s, gw_span span) {
    static float by[N];
    gw_update u;
    GW_TRY(gw_session_finish(s, span, &u));
    for (size_t i = u.own.off; i < gw_span_end(u.own); i++) {
        by[i] = u.scale == 1 ? u.grad[i] : u.grad[i] * u.scale;
        s->env.param[i] -= rule ? 0 : rate * by[i];
    }
    if (rule && u.own.n > 0)
        gw_optimizer_update(rule, s->env.param, by, u.own, rate, 1);
    GW_TRY(gw_session_publish(s, span));
    return gw_session_await(s, span);
}

static gw_err session_step(gw_session *s, const gw_span *layers, model *m, int step, bool lazy) {
    gw_session_begin(s, share_of(me));
    if (rule)
        gw_optimizer_begin(rule);
    float *sums = gw_session_sums(s);
    model_gradient(m, step, false);
    for (size_t i = 0; i < N; i++)
        if (sums)
            sums[i] += m->grad[i];
        else
            s->env.grad[i] = m->grad[i];
    for (int l = GROUPS - 1; l >= 0; l--) {
        GW_TRY(gw_session_ready(s, layers[l]));
        GW_TRY(gw_session_progress(s));
    }
    if (!lazy)
        return session_update(s, (gw_span){0, N});
    for (int l = 0; l < GROUPS; l++)
        GW_TRY(session_update(s, layers[l]));
    return GW_OK;
}

static gw_err session_run(const setting *of, model *m) {
    static const gw_span layers[GROUPS] = {{0, 108}, {108, 65}};
    gw_tensor tensors[TENSORS];
    gw_session *s = NULL;
    model_make(m);
    for (int t = 0; t < TENSORS; t++) {
        int r = rows[t] ? (int)rows[t] : 1;
        tensors[t] = (gw_tensor){{m->off[t], sizes[t]}, group_of[t], r, (int)sizes[t] / r};
    }
    GW_TRY(new_session(&s, of->comm, of->codec, "auto", false));
    gw_session_setup setup = {.n = N,
                              .layers = layers,
                              .n_layers = GROUPS,
                              .tensors = tensors,
                              .n_tensors = TENSORS,
                              .by_layer = of->lazy,
                              .adds = true,
                              .params = m->param,
                              .seed = 1,
                              .yield = ranks > 2};
    gw_err e = of->rule ? open_rule(&rule, of->rule, tensors, TENSORS) : GW_OK;
    GW_THEN(e, gw_session_open(s, MPI_COMM_WORLD, &setup));
    for (int step = 1; step <= STEPS; step++)
        GW_THEN(e, session_step(s, layers, m, step, of->lazy));
    GW_THEN(e, gw_session_settle(s));
    if (e == GW_OK)
        memcpy(m->param, s->env.param, sizeof m->param);
    gw_session_close(s);
    gw_session_free(s);
    gw_optimizer_close(rule);
    rule = NULL;
    return e;
}

/* ---- the contract ---- */

static void same(const model *a, const model *b, const setting *s, const char *what) {
    for (size_t i = 0; i < N; i++)
        CHECK(memcmp(&a->param[i], &b->param[i], sizeof(float)) == 0,
              "%s, %s, %s%s: %s: parameter %zu: %.9g, %.9g", s->comm, s->codec,
              s->lazy ? "lazy" : "eager", s->own ? ", own memory" : "", what, i,
              (double)a->param[i], (double)b->param[i]);
}

static void try_codec(const char *comm, const char *codec, bool mean, int *carried) {
    static model session, library;
    for (int way = 0; way < 4; way++) {
        setting s = {.comm = comm, .codec = codec, .lazy = way & 1, .own = way & 2, .mean = mean};
        gw_err e = session_run(&s, &session);
        bool runs = library_run(&s, &library, false);
        CHECK(runs == (e == GW_OK), "%s, %s: the session %s, the library %s", comm, codec,
              e == GW_OK ? "runs" : gw_err_text(), runs ? "runs" : gradwire_error());
        if (!runs)
            return;
        same(&session, &library, &s, "session and library differ");
        CHECK(library_run(&s, &library, true), "%s", gradwire_error());
        same(&session, &library, &s, "saved and loaded");
    }
    ++*carried;
}

/* Each rule, saved and loaded. Refused: of whole tensors on parts, of gradients on directions. */
static void try_rules(const char *comm, const char *codec, bool directs) {
    static model session, library;
    const char *why = directs ? "takes gradients" : "moves whole tensors";
    for (const gw_entry *const *o = gw_optimizers.entries; *o; o++) {
        bool some = directs || ((const gw_optimizer_ops *)*o)->traits & GW_OPTIMIZER_TENSORS;
        for (int way = 0; way < 4; way++) {
            setting s = {comm, codec, (*o)->name, .lazy = way & 1, .own = way & 2};
            bool runs = library_run(&s, &library, true);
            CHECK(runs || (some && strstr(gradwire_error(), why)), "%s", gradwire_error());
            if (!runs)
                continue;
            CHECK_OK(session_run(&s, &session));
            same(&session, &library, &s, s.rule);
        }
    }
}

/* Of exact values, over an algorithm that sums in place and over one that does not. */
static void try_lent(const char *comm, bool encodes) {
    static const char *const algos[] = {"shm", "sra"};
    static model session, library;
    char words[128];
    for (int way = 0; way < 4; way++) {
        const char *algo = algos[way >> 1];
        bool in_place = encodes && ranks > 1 && algo == algos[0];
        snprintf(words, sizeof words, "%s%calgo=%s", comm, strchr(comm, ':') ? ',' : ':', algo);
        setting s = {.comm = words,
                     .codec = "none",
                     .lazy = way & 1,
                     .mean = encodes, /* others round it otherwise */
                     .lent = true,
                     .in_place = in_place};
        CHECK_OK(session_run(&s, &session));
        CHECK(library_run(&s, &library, true), "%s", gradwire_error());
        same(&session, &library, &s, "lent memory");
    }
}

/* Of a rank without samples lent memory is not read, but it gets the result. */
static void try_idle(const char *comm) {
    static model m;
    char words[128];
    snprintf(words, sizeof words, "%s:algo=shm", comm);
    setting s = {.comm = words, .codec = "none", .mean = true, .lent = true, .in_place = true};
    gradwire *g;
    float *grads[TENSORS];
    model_make(&m);
    ok(library_open(&g, &s, &m));
    ok(gradwire_begin(g, me, ranks * (ranks - 1) / 2));
    for (int t = 0; t < TENSORS; t++) {
        grads[t] = grad_of(&s, &m, t);
        for (size_t i = 0; i < sizes[t]; i++)
            grads[t][i] = me == 0 ? NAN : 2;
    }
    ok(gradwire_ready(g, TENSORS, every, grads));
    ok(gradwire_finish(g, GRADWIRE_ALL));
    for (int t = 0; t < TENSORS; t++)
        for (size_t i = 0; i < sizes[t]; i++)
            CHECK(fabsf(grads[t][i] - 2) < 1e-5f, "%s, %d: %g", words, t, (double)grads[t][i]);
    ok(gradwire_updated(g, GRADWIRE_ALL));
    const char *notes = gradwire_text(g, "notes");
    CHECK(strstr(notes, "summed in place"), "%s: notes: %s", words, notes);
    ok(gradwire_end(g, 0));
    ok(gradwire_close(g));
}

static void try_names(const char *comm) {
    static const char *const alike[][2] = {{"qsgd:bits=4;layer1=none", "qsgd:bits=4;t[23]=none"},
                                           {"qsgd:bits=4;layer0=fp16;min_bytes=64",
                                            "qsgd:bits=4;t[01]=fp16;layer0=none;min_bytes=64"}};
    static model by_layer, by_name;
    bool runs = false;
    for (int i = 0; i < 2; i++) {
        setting layers = {.comm = comm, .codec = alike[i][0]}, names = layers;
        names.codec = alike[i][1];
        runs = library_run(&layers, &by_layer, false);
        CHECK(library_run(&names, &by_name, false) == runs, "%s, %s: %s", comm, names.codec,
              gradwire_error());
        if (runs)
            same(&by_layer, &by_name, &names, "layers and names differ");
    }
    setting none = {.comm = comm, .codec = "qsgd;t1=fp16;*.bias=none"};
    CHECK(!library_run(&none, &by_name, false), "%s: a rule for no tensor", comm);
    CHECK(!runs ||
              strstr(gradwire_error(), "'*.bias': no tensor has such a name: there are t0, t1"),
          "%s", gradwire_error());
}

/* The first batch's result, where the strategy exchanges gradients and nothing is lost. */
static void try_mean(const char *comm) {
    static model m;
    setting s = {.comm = comm, .codec = "none", .mean = true};
    gradwire *g;
    int t;
    size_t from, n;
    model_make(&m);
    ok(library_open(&g, &s, &m));
    ok(gradwire_begin(g, me + 1, global_samples()));
    model_gradient(&m, 1, true);
    float *grads[TENSORS];
    for (t = 0; t < TENSORS; t++)
        grads[t] = m.grad + m.off[t];
    ok(gradwire_ready(g, TENSORS, every, grads));
    ok(gradwire_finish(g, GRADWIRE_ALL));
    for (int i = 0; ok(gradwire_owned(g, i, &t, &from, &n)); i++)
        for (size_t k = from; k < from + n; k++) {
            double mean = 0;
            for (int r = 0; r < ranks; r++)
                mean += share_of(r) * (double)draw(1, r, m.off[t] + k);
            CHECK(fabs(mean - (double)grads[t][k]) < 1e-6, "%s: %g is not the mean %g", comm,
                  (double)grads[t][k], mean);
        }
    ok(gradwire_updated(g, GRADWIRE_ALL));
    ok(gradwire_end(g, 0));
    ok(gradwire_close(g));
}

/* ---- memory ---- */

/* Resident bytes of this process. */
static double resident(void) {
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    CHECK(f && fscanf(f, "%*s %ld", &pages) == 1, "/proc/self/statm");
    fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

/* What an open handle of one tensor takes, with its parameters written. */
static double handle_takes(const char *comm, size_t n, float *param) {
    char words[256];
    gradwire *g;
    double before = resident();
    snprintf(words, sizeof words, "--comm '%s' --profile off", comm);
    ok(gradwire_new(&g, -1, words));
    ok(gradwire_tensor(g, "t", 0, n, 0, param));
    ok(gradwire_open(g));
    if (!param)
        memset(gradwire_memory(g, 0, GRADWIRE_PARAM), 1, n * sizeof *param);
    double takes = resident() - before;
    ok(gradwire_close(g));
    return takes;
}

/* Parameters of the caller's have no memory in the library, if the strategy leaves them. */
static void try_memory(const char *comm, bool writes) {
    const size_t n = (size_t)10 << 20, bytes = n * sizeof(float); /* more than malloc keeps */
    float *param = malloc(bytes);
    CHECK(param != NULL, "memory");
    memset(param, 1, bytes);
    double saved = handle_takes(comm, n, NULL) - handle_takes(comm, n, param);
    CHECK((saved > 0.5 * (double)bytes) == !writes, "%s: the caller's memory saves %g of %zu bytes",
          comm, saved, bytes);
    free(param);
}

int main(int argc, char **argv) {
    CHECK(gradwire_start(NULL, &me, &ranks) == 0, "%s", gradwire_error());
    CHECK(check_ranks(argc, argv) == ranks, "ranks");
    lent = lendable(sizeof(float[N]), &lent_file);
    const char *comm = argc > 2 ? argv[2] : "allreduce";
    gw_strategy strategy;
    int carried = 0;
    CHECK_OK(find_strategy(&strategy, comm));
    if (gw_strategy_exact(strategy.ops) && strcmp(comm, "sparse") != 0)
        try_mean(comm);
    if (strcmp(comm, "iallreduce") == 0)
        try_mean("iallreduce:bucket=256"); /* sums arrive in parts of tensors */
    if (strcmp(comm, "sparse") != 0) {     /* it carries no exact codec */
        try_memory(comm, gw_strategy_publishes(strategy.ops));
        try_lent(comm, strategy.ops->traits & GW_STRATEGY_ENCODES);
        if (strategy.ops->traits & GW_STRATEGY_ENCODES && ranks > 1)
            try_idle(comm);
    }
    bool directs = strategy.ops->gives == GW_GIVES_DIRECTION;
    gw_strategy_free(&strategy);
    for (const gw_entry *const *c = gw_codecs.entries; *c; c++)
        try_codec(comm, (*c)->name, directs, &carried);
    try_names(comm);
    try_rules(comm, strcmp(comm, "sparse") == 0 ? "topk" : "none", directs);
    CHECK(carried > 0, "%s: no codec was carried", comm);
    return 0;
}
