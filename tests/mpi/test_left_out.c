/* A batch in which one rank's gradient is not finite, or larger than exchange and update carry, or
 * that one rank cancels, is left out: through the public header, with every strategy, codec and
 * optimizer, the parameters have the bits of a run that never took that batch. */
#include "client.h"

#include "comm/strategy.h"
#include "compress/codec.h"
#include "optim/optimizer.h"

#include <math.h>
#include <string.h>

enum { TENSORS = 3, GROUPS = 2, N = 96 + 12 + 60, STEPS = 10 };
static const size_t sizes[TENSORS] = {96, 12, 60}, rows[TENSORS] = {8, 0, 12};
static const int group_of[TENSORS] = {0, 0, 1};
static const float rate = 0.05f;

/* What happens in a step on the last rank. */
typedef enum event { PLAIN, BAD_NAN, BAD_INF, HUGE, CANCELS } event;
static const event events[STEPS + 1] = {[3] = BAD_NAN, [5] = BAD_INF, [7] = HUGE, [9] = CANCELS};

typedef struct setting {
    const char *comm, *codec, *feedback;
    const char *rule;    /* by which the library updates; NULL: this program does */
    bool lazy, without;  /* without: such batches are not taken */
    bool together, late; /* the strategy's traits */
    bool alone;          /* later the ranks take steps of their own, though together */
    bool carries;        /* whatever is finite */
    bool lent;           /* gradients are summed where they lie */
} setting;

static float param[N], *grad; /* the latter in a file's memory */
static int grad_file;

static bool last(void) {
    return me == ranks - 1;
}

/* False: it was refused. */
static bool open_handle(gradwire **g, const setting *s, const char *how) {
    char words[512], name[16];
    size_t off = 0;
    snprintf(words, sizeof words,
             "--comm '%s' --compress '%s' --error-feedback %s --update %s --profile off %s "
             "--on-nan %s %s%s",
             s->comm, s->codec, s->feedback, s->lazy ? "lazy" : "eager",
             strstr("dgc momentum", s->feedback) ? "--momentum 0.9" : "", how,
             s->rule ? "--optimizer " : "", s->rule ? s->rule : "");
    for (size_t i = 0; i < N; i++)
        param[i] = draw(0, 99, i);
    if (gradwire_new(g, -1, words) < 0)
        return false;
    for (int t = 0; t < TENSORS; off += sizes[t++]) {
        snprintf(name, sizeof name, "t%d", t);
        ok(gradwire_tensor(*g, name, group_of[t], sizes[t], rows[t], param + off));
    }
    if (gradwire_open(*g) >= 0) {
        CHECK(!s->lent || ok(gradwire_lend(*g, grad, sizeof(float[N]), grad_file)) == 1, "%s: %s",
              s->comm, gradwire_error());
        return true;
    }
    ok(gradwire_close(*g));
    return false;
}

static void update(gradwire *g, const setting *s, int group) {
    int t, more = ok(gradwire_finish(g, group));
    size_t from, n, off[TENSORS] = {0, 96, 108};
    if (more && s->rule)
        ok(gradwire_update(g, group, rate));
    for (int i = 0; more && !s->rule && ok(gradwire_owned(g, i, &t, &from, &n)); i++)
        for (size_t k = off[t] + from; k < off[t] + from + n; k++)
            if (group == GRADWIRE_ALL || group_of[t] == group)
                param[k] -= rate * grad[k];
    ok(gradwire_updated(g, group));
}

static void catch_up(gradwire *g, const setting *s) {
    for (int i = 0; i < GROUPS; i++) {
        update(g, s, i);
        ok(gradwire_await(g, i));
    }
}

static void make_gradient(int step, event e) {
    for (size_t i = 0; i < N; i++)
        grad[i] = draw(step, me, i);
    if (last() && e != PLAIN && e != CANCELS) /* in the group that goes out last */
        grad[(size_t)step] = e == BAD_NAN ? NAN : e == BAD_INF ? -INFINITY : 3e38f;
}

/* All ranks leave such a batch out. */
static bool of_all(const setting *s, event e) {
    return s->together && (!s->alone || e == BAD_NAN);
}

/* What the run without them does instead, of a strategy whose ranks go on alone. */
static bool idles(const setting *s, event e) {
    return s->without && e != PLAIN && last();
}

static void check_left_out(gradwire *g, const setting *s, event e) {
    bool out = !s->without && e != PLAIN && (of_all(s, e) || last()) && !(s->carries && e == HUGE);
    CHECK(ok(gradwire_left_out(g)) == out, "%s, %s, lazy=%d: event %d: left out: %d", s->comm,
          s->codec, s->lazy, (int)e, !out);
    for (size_t i = 0; i < N && out && !s->lazy && !s->late && e != CANCELS; i++)
        CHECK(grad[i] == 0, "%s, %s: event %d: gradient %zu is %g", s->comm, s->codec, (int)e, i,
              (double)grad[i]);
}

static void step(gradwire *g, const setting *s, int number, event e) {
    int all[TENSORS] = {2, 1, 0};
    float *grads[TENSORS] = {grad + 108, grad + 96, grad};
    ok(gradwire_begin(g, !idles(s, e), ranks));
    if (s->lazy && number > 1)
        catch_up(g, s);
    make_gradient(number, e);
    ok(gradwire_ready(g, 1, all, grads));
    if (e == CANCELS && last() && !s->without) {
        ok(gradwire_cancel(g));
        check_left_out(g, s, e);
        return;
    }
    ok(gradwire_ready(g, 2, all + 1, grads + 1));
    if (!s->lazy)
        update(g, s, GRADWIRE_ALL);
    ok(gradwire_end(g, 1.0));
    check_left_out(g, s, e);
}

/* Parameters go to *out. */
static bool run(const setting *s, float *out) {
    gradwire *g;
    int taken = 0;
    if (!open_handle(&g, s, "skip"))
        return false;
    for (int k = 1; k <= STEPS; k++) {
        event e = events[k];
        if (e != PLAIN && s->without && of_all(s, e))
            continue;
        step(g, s, k, e);
        taken++;
        for (size_t i = 0; i < N; i++)
            CHECK(isfinite(param[i]), "%s, %s, lazy=%d: step %d: parameter %zu", s->comm, s->codec,
                  s->lazy, k, i);
    }
    if (s->lazy)
        catch_up(g, s);
    ok(gradwire_settle(g));
    ok(gradwire_close(g));
    memcpy(out, param, sizeof param);
    return taken > 0;
}

static void compare(setting s) {
    static float with[N], without[N];
    if (!run(&s, with))
        return;
    s.without = true;
    CHECK(run(&s, without), "%s", gradwire_error());
    for (size_t i = 0; i < N; i++)
        CHECK(memcmp(&with[i], &without[i], sizeof(float)) == 0,
              "%s, %s, feedback=%s, lazy=%d: parameter %zu: %.9g, without the batch %.9g", s.comm,
              s.codec, s.feedback, s.lazy, i, (double)with[i], (double)without[i]);
}

static void try_strategy(const char *comm, const char *codec, const char *feedback) {
    const gw_strategy_ops *ops = NULL;
    for (const gw_entry *const *e = gw_strategies.entries; *e; e++)
        if (strncmp(comm, (*e)->name, strlen((*e)->name)) == 0)
            ops = (const gw_strategy_ops *)*e;
    int ways = strcmp(codec, "none") == 0 || strncmp(codec, "topk", 4) == 0 ? 2 : 1;
    for (int lazy = 0; lazy < ways; lazy++) {
        static float out[N];
        setting s = {.comm = comm, .codec = codec, .feedback = feedback, .lazy = lazy};
        s.together = ops->gives != GW_GIVES_OWN;
        s.alone = strchr(comm, ':') && s.together && ops->agrees;
        s.late = ops->gives == GW_GIVES_LATE;
        if (!s.late || strcmp(codec, "none") == 0)
            compare(s);
        else
            run(&s, out);
    }
}

/* Rules that keep squares; the others take any float where nothing is summed. */
static void try_rules(bool together) {
    static float out[N];
    for (const gw_entry *const *o = gw_optimizers.entries; *o; o++) {
        setting s = {.comm = together ? "allreduce" : "local:period=3",
                     .codec = "none",
                     .feedback = "auto",
                     .together = together,
                     .rule = (*o)->name};
        s.carries = ((const gw_optimizer_ops *)*o)->most == 0 && !(together && ranks > 1);
        if (s.carries)
            run(&s, out);
        else
            compare(s);
    }
}

/* A batch is known to be void when all gradients are there, or when they have been summed. */
static void try_lent(const char *comm) {
    for (int lazy = 0; lazy < 2; lazy++)
        compare((setting){.comm = comm,
                          .codec = "none",
                          .feedback = "auto",
                          .lazy = lazy,
                          .together = true,
                          .lent = true});
}

/* All ranks are told by the same line, and can close. */
static void stops(const char *comm, bool lent) {
    setting s = {.comm = comm, .codec = "none", .feedback = "auto", .lent = lent};
    int all[TENSORS] = {2, 1, 0};
    float *grads[TENSORS] = {grad + 108, grad + 96, grad};
    char words[200];
    gradwire *g;
    CHECK(open_handle(&g, &s, "stop"), "%s", gradwire_error());
    ok(gradwire_begin(g, 1, ranks));
    make_gradient(3, BAD_NAN);
    ok(gradwire_ready(g, TENSORS, all, grads));
    int e = gradwire_finish(g, GRADWIRE_ALL);
    snprintf(words, sizeof words,
             "step 1, rank %d, tensor t0: the gradient is no longer finite (nan%s): try a smaller "
             "rate, or --on-nan skip",
             ranks - 1, lent ? "" : " at float 3 of the tensor, 1 such in all");
    refused(e, words);
    CHECK(!gradwire_alone(e), "%s: other ranks are told, too", comm);
    ok(gradwire_close(g));
}

/* Nobody looks: the ranks get what the sum is. */
static void keeps(void) {
    setting s = {.comm = "allreduce", .codec = "none", .feedback = "auto"};
    int all[TENSORS] = {2, 1, 0};
    float *grads[TENSORS] = {grad + 108, grad + 96, grad};
    gradwire *g;
    CHECK(open_handle(&g, &s, "keep"), "%s", gradwire_error());
    ok(gradwire_begin(g, 1, ranks));
    refused(gradwire_cancel(g), "--on-nan keep");
    make_gradient(3, BAD_NAN);
    ok(gradwire_ready(g, TENSORS, all, grads));
    CHECK(ok(gradwire_finish(g, GRADWIRE_ALL)) == 1 && isnan(grad[3]), "the sum is %g",
          (double)grad[3]);
    CHECK(ok(gradwire_left_out(g)) == 0, "left out");
    ok(gradwire_updated(g, GRADWIRE_ALL));
    ok(gradwire_end(g, 1));
    ok(gradwire_close(g));
}

/* What fp16 would make infinite, and error feedback keep. */
static void beyond_half(void) {
    setting s = {.comm = "iallreduce", .codec = "fp16", .feedback = "on"};
    int all[TENSORS] = {2, 1, 0};
    float *grads[TENSORS] = {grad + 108, grad + 96, grad};
    gradwire *g;
    CHECK(open_handle(&g, &s, "skip"), "%s", gradwire_error());
    for (int k = 0; k < 2; k++) {
        ok(gradwire_begin(g, 1, ranks));
        make_gradient(1, PLAIN);
        grad[7] = last() && k == 0 ? 65536 : grad[7];
        ok(gradwire_ready(g, TENSORS, all, grads));
        ok(gradwire_finish(g, GRADWIRE_ALL));
        CHECK(ok(gradwire_left_out(g)) == (ranks > 1 && k == 0), "fp16: batch %d", k);
        CHECK(isfinite(grad[7]), "fp16: batch %d: %g", k, (double)grad[7]);
        ok(gradwire_updated(g, GRADWIRE_ALL));
        ok(gradwire_end(g, 1));
    }
    ok(gradwire_close(g));
}

/* The batch is given up by all ranks wherever they are in it, and by nobody else's help. */
static void cancels_anywhere(const char *comm) {
    setting s = {.comm = comm, .codec = "none", .feedback = "auto"};
    int all[TENSORS] = {2, 1, 0};
    float *grads[TENSORS] = {grad + 108, grad + 96, grad}, before[N];
    gradwire *g;
    CHECK(open_handle(&g, &s, "skip"), "%s", gradwire_error());
    refused(gradwire_cancel(g), "no batch is open");
    memcpy(before, param, sizeof param);
    for (int k = 0; k < 4; k++) { /* so many calls come before */
        ok(gradwire_begin(g, 1, ranks));
        make_gradient(1, PLAIN);
        if (k > 0)
            ok(gradwire_ready(g, k == 1 ? 1 : TENSORS, all, grads));
        if (k > 2)
            ok(gradwire_finish(g, GRADWIRE_ALL));
        ok(gradwire_cancel(g));
        CHECK(ok(gradwire_left_out(g)) == (k < 3), "%s: cancelled after %d", comm, k);
        refused(gradwire_end(g, 1), "no batch is open");
    }
    CHECK(memcmp(before, param, sizeof param) == 0 || strcmp(comm, "gossip") == 0,
          "%s: parameters moved", comm); /* a mean of equal values may round */
    step(g, &s, 1, PLAIN);
    step(g, &s, 2, PLAIN); /* the second of `delayed` updates */
    CHECK(memcmp(before, param, sizeof param) != 0, "%s: the next batch is none", comm);
    ok(gradwire_close(g));
}

int main(int argc, char **argv) {
    CHECK(gradwire_start(NULL, &me, &ranks) == 0, "%s", gradwire_error());
    CHECK(check_ranks(argc, argv) == ranks, "ranks");
    grad = lendable(sizeof(float[N]), &grad_file);
    for (const gw_entry *const *s = gw_strategies.entries; *s; s++) {
        const char *comm = (*s)->name;
        const gw_strategy_ops *ops = (const gw_strategy_ops *)*s;
        bool lossy = ops->traits & GW_STRATEGY_LOSSY;
        for (const gw_entry *const *c = gw_codecs.entries; *c; c++)
            try_strategy(comm, (*c)->name, lossy ? "auto" : "on");
        if (ops->gives != GW_GIVES_OWN && strcmp(comm, "sparse") != 0)
            stops(comm, false);
        if (strcmp(comm, "sparse") != 0)
            cancels_anywhere(comm);
    }
    try_strategy("sparse", "topk:ratio=0.1", "dgc");
    try_strategy("sparse:progress=thread", "topk:ratio=0.1", "momentum");
    try_strategy("sharded:progress=thread", "none", "auto");
    try_rules(true);
    try_rules(false);
    for (const gw_entry *const *c = gw_codecs.entries; *c; c++) {
        if (ranks > 1)
            try_strategy("zerooneadam:freeze=1,double=2,local=2", (*c)->name, "on");
        try_strategy("iallreduce", (*c)->name, "ef21");
        try_strategy("allreduce", (*c)->name, "loco:reset=3");
    }
    try_strategy("iallreduce:bucket=256,progress=thread", "onebit", "on");
    try_strategy("iallreduce:bucket=256,order=priority,credit=512,algo=sra", "none", "on");
    for (int i = 0; i < 2 && ranks > 1; i++) {
        const char *comm = i == 0 ? "allreduce:algo=shm" : "iallreduce:bucket=256,algo=shm";
        try_lent(comm);
        stops(comm, true);
    }
    keeps();
    beyond_half();
    return 0;
}
