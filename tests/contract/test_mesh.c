/* A step of a model that lies on several ranks is the step of the whole model on one: over all
 * meshes that so many ranks allow, with every timetable, both splits, and whatever the exchange of
 * activations can be told. Of these factors each pair of values comes together in some trial, with
 * exact codecs and with lossy ones.
 *
 * Bits depend on tensor ranks, microbatches and runs of rows alone: a trial is compared with the
 * same one without stages. */
#include "base/rng.h"
#include "mpi/wait.h"
#include "prof/ledger.h"

#include "mesh_trial.h"

#include <math.h>
#include <omp.h>
#include <string.h>
#include <zlib.h>

/* ---- what a step must be ---- */

static bool is_exact(const trial *t) {
    return t->v[ACTIVATIONS] == 0 && t->v[DELTAS] == 0;
}

/* Of a layer's gradient, relative to its length. */
static double tolerance(const trial *t) {
    int lossiest = t->v[ACTIVATIONS] > t->v[DELTAS] ? t->v[ACTIVATIONS] : t->v[DELTAS];
    static const double of[] = {1e-5, 1e-2, 0.5, 1e9};
    return of[lossiest];
}

static void check_gradient(const rig *r, const trial *t, const whole *w) {
    const float *g = gw_model_grads(r->model);
    gw_shard_gather(gw_model_shard(r->model), w->grads, w->own);
    for (int l = 0; l < gw_model_layers(r->model); l++) {
        gw_span s = gw_model_spans(r->model)[l];
        double off = 0, length = 0;
        for (size_t i = s.off; i < gw_span_end(s); i++) {
            double is = (double)g[i] - (r->add ? 0.5 : 0);
            RIG_CHECK(r, isfinite(is), "layer %d, float %zu is not finite", l, i - s.off);
            off += (is - w->own[i]) * (is - w->own[i]);
            length += (double)w->own[i] * w->own[i];
        }
        double rounding = r->add ? 1e-6 * sqrt((double)s.n) : 1e-9;
        RIG_CHECK(r, sqrt(off) <= tolerance(t) * sqrt(length) + rounding,
                  "layer %d is off by %g of %g", l, sqrt(off), sqrt(length));
    }
}

/* The loss hook tells the loss on all tensor ranks of the last stage, in the same bits. */
static void check_loss(const rig *r, const trial *t, double sum, double serial) {
    const int *at = r->mesh.at, *size = r->mesh.shape.size;
    bool top = at[GW_DIM_PIPE] == size[GW_DIM_PIPE] - 1;
    double first = r->told;
    CHECK_OK(gw_bcast(&first, 1, MPI_DOUBLE, 0, r->mesh.comm[GW_DIM_TENSOR]));
    RIG_CHECK(r, first == r->told, "the loss differs on a tensor rank");
    RIG_CHECK(r, top || r->told == 0, "a loss of %g without logits", r->told);
    bool counts_it = top && at[GW_DIM_TENSOR] == 0;
    RIG_CHECK(r, gw_pipeline_counts(r->pipeline) == counts_it, "who counts the loss?");
    RIG_CHECK(r, sum == (counts_it ? r->told : 0), "loss %g, told %g", sum, r->told);
    RIG_CHECK(r, isfinite(sum), "loss %g", sum);
    if (counts_it && is_exact(t))
        RIG_CHECK(r, fabs(sum - serial) <= 1e-5 * serial, "loss %.9g, not %.9g", sum, serial);
}

/* ---- bytes, by hand ---- */

static int width_of(const rig *r, int l) {
    return gw_model_spec_width(&r->spec, l);
}

/* Of the widest part, as often as there are tensor ranks. */
static int padded(const rig *r, int width) {
    int most = 0, T = r->mesh.shape.size[GW_DIM_TENSOR];
    for (int i = 0; i < T; i++) {
        int n = (int)gw_share_part(width, i, T).n;
        most = n > most ? n : most;
    }
    return most * T;
}

/* Floats that one sample makes the tensor ranks send in a pass forward and in one backward. An
 * allreduce of n floats sends 2(T-1)n, an allgather or a reduce-scatter half of it. */
static void tensor_floats(const rig *r, int *forward, int *backward) {
    int T = r->mesh.shape.size[GW_DIM_TENSOR], layers = gw_model_spec_layers(&r->spec);
    *forward = *backward = 0;
    for (int l = 0; l < layers && T > 1; l++) {
        bool columns = r->c.parallel.columns || l % 2 == 0;
        if (!columns)
            *forward += 2 * (T - 1) * width_of(r, l);
        else if (l > 0 && r->c.parallel.columns) {
            *forward += (T - 1) * padded(r, width_of(r, l - 1));
            *backward += (T - 1) * padded(r, width_of(r, l - 1));
        } else if (l > 0)
            *backward += 2 * (T - 1) * width_of(r, l - 1);
        if (columns && l == layers - 1)
            *forward += 4 * T * (T - 1);
    }
}

typedef struct traffic {
    uint64_t bytes, hops;
} traffic;

/* Of a replica's step. */
static traffic expected(const rig *r, int local) {
    int T = r->mesh.shape.size[GW_DIM_TENSOR], forward, backward, filled = 0, at = -1;
    json_t *told = gw_pipeline_json(r->pipeline), *cut = json_object_get(told, "layers");
    traffic sum = {0};
    for (int j = 0; j < r->c.parallel.microbatches; j++)
        filled += gw_span_part((gw_span){0, (size_t)local}, j, r->c.parallel.microbatches).n > 0;
    for (size_t b = 0; b + 1 < json_array_size(cut); b++) {
        at += (int)json_integer_value(json_array_get(cut, b));
        bool behind_rows = !r->c.parallel.columns && at % 2 == 1;
        sum.bytes += 8 * (uint64_t)local * (uint64_t)(width_of(r, at) * (behind_rows ? T : 1));
        sum.hops += 2 * (uint64_t)(filled * T);
    }
    json_decref(told);
    tensor_floats(r, &forward, &backward);
    forward *= r->c.parallel.recompute ? 2 : 1;
    sum.bytes += 4 * (uint64_t)(forward + backward) * (uint64_t)local;
    return sum;
}

/* Over all ranks; MPI's own sums are no messages, and their model rounds each to whole bytes. */
static void check_traffic(const rig *r, const gw_batch_cost *cost, int local) {
    const int *at = r->mesh.at, *size = r->mesh.shape.size;
    traffic here = {0};
    if (at[GW_DIM_PIPE] == 0 && at[GW_DIM_TENSOR] == 0)
        here = expected(r, local);
    uint64_t all[] = {cost->wire_bytes, cost->messages, cost->collectives, here.bytes, here.hops};
    CHECK_OK(gw_allreduce(MPI_IN_PLACE, all, 5, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD));
    bool halves = (size[GW_DIM_TENSOR] & (size[GW_DIM_TENSOR] - 1)) == 0;
    uint64_t rounded = halves ? 0 : all[2];
    RIG_CHECK(r, all[0] <= all[3] && all[0] + rounded >= all[3], "%llu bytes, not %llu",
              (unsigned long long)all[0], (unsigned long long)all[3]);
    if (!r->c.parallel.columns &&
        (gw_model_spec_layers(&r->spec) % 2 == 0 ||
         size[GW_DIM_TENSOR] == 1)) /* else some are gathered by messages */
        RIG_CHECK(r, all[1] == all[4], "%llu messages, not %llu", (unsigned long long)all[1],
                  (unsigned long long)all[4]);
}

/* ---- a trial ---- */

static void samples_of(const rig *r, int step, uint32_t *idx, int n) {
    for (int i = 0; i < n; i++)
        idx[i] = (uint32_t)(r->mesh.at[GW_DIM_DATA] * 31 + step * 13 + i * 7) % SAMPLES;
}

/* The bits of a step, those of replica 0: of its whole gradient and of its loss. */
typedef struct bits {
    uint32_t gradient;
    double loss;
} bits;

static uint32_t hash(const float *x, size_t n) {
    return (uint32_t)crc32_z(0, (const Bytef *)x, n * sizeof *x);
}

static bits bits_of(const rig *r, double loss, float *room, size_t n) {
    bits b = {0, r->mesh.at[GW_DIM_DATA] == 0 ? loss : 0};
    CHECK_OK(gw_pipeline_collect(r->pipeline, gw_model_grads(r->model), room, MPI_COMM_WORLD));
    if (me == 0)
        b.gradient = hash(room, n);
    CHECK_OK(gw_bcast(&b.gradient, 1, MPI_UINT32_T, 0, MPI_COMM_WORLD));
    CHECK_OK(gw_allreduce(MPI_IN_PLACE, &b.loss, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
    return b;
}

static double rig_step(rig *r, int step, int local, const uint32_t *idx, gw_batch_cost *cost) {
    double sum;
    gw_label labels[SAMPLES];
    gw_pipeline_job job = {.set = &set,
                           .idx = idx,
                           .labels = labels,
                           .local = local,
                           .global = GLOBAL,
                           .pieces = true,
                           .step = (uint64_t)step};
    r->awaited = r->ready = r->begun = r->losses = 0;
    gw_ledger_begin();
    gw_err e = gw_pipeline_step(r->pipeline, &job, &sum);
    gw_ledger_end(cost);
    RIG_CHECK(r, e == GW_OK, "%s", gw_err_text());
    RIG_CHECK(r, r->awaited == gw_model_layers(r->model), "%d layers awaited", r->awaited);
    RIG_CHECK(r, r->ready == (1 << gw_model_layers(r->model)) - 1, "layers %x ready", r->ready);
    return sum;
}

/* An evaluation, in as many goes as there are rows for; exact whatever the codecs. */
static void check_test(const rig *r, whole *w) {
    uint32_t idx[TESTED];
    gw_label labels[TESTED];
    double loss = 0;
    int correct = 0, hits, rows = gw_pipeline_room(r->pipeline)->rows;
    samples_of(r, 5, idx, TESTED);
    double serial = whole_forward(w, idx, TESTED, &hits);
    for (int at = 0; at < TESTED; at += rows) {
        int n = TESTED - at < rows ? TESTED - at : rows;
        gw_pipeline_result found;
        gw_dataset_labels(&set, idx + at, n, labels);
        gw_pipeline_samples s = {&set, idx + at, n, labels};
        RIG_CHECK(r, gw_pipeline_test(r->pipeline, &s, &found) == GW_OK, "%s", gw_err_text());
        loss += found.loss;
        correct += found.correct;
        if (gw_pipeline_counts(r->pipeline))
            RIG_CHECK(r,
                      memcmp(gw_model_predictions(r->model), gw_model_predictions(w->model) + at,
                             (size_t)n) == 0,
                      "predictions from %d on", at);
    }
    CHECK_OK(gw_pipeline_tested(r->pipeline));
    if (!gw_pipeline_counts(r->pipeline))
        hits = 0, serial = 0;
    RIG_CHECK(r, fabs(loss - serial) <= 1e-5 * serial && correct == hits,
              "evaluated: %d right, not %d, loss %.9g, not %.9g", correct, hits, loss, serial);
}

enum { STEPS = 3 };

/* Full, short and full steps, with evaluations between. */
static void walk(rig *r, const trial *t, whole *w, bool judge, bits out[STEPS]) {
    for (int k = 0; k < STEPS; k++) {
        uint32_t idx[TESTED];
        int local = r->local[k % 2];
        gw_batch_cost cost;
        samples_of(r, k, idx, local);
        double loss = rig_step(r, k, local, idx, &cost);
        out[k] = bits_of(r, loss, w->own, w->n);
        if (!judge)
            continue;
        double serial = whole_step(w, idx, local, NULL);
        check_gradient(r, t, w);
        check_loss(r, t, loss, serial);
        if (is_exact(t))
            check_traffic(r, &cost, local);
        if (is_exact(t) || k == 0)
            check_test(r, w);
    }
}

static void check_params(const rig *r, const whole *w) {
    for (size_t i = 0; i < w->n; i++)
        w->own[i] = NAN;
    CHECK_OK(gw_pipeline_collect(r->pipeline, gw_model_params(r->model), w->own, MPI_COMM_WORLD));
    const float *params = gw_model_params(w->model);
    RIG_CHECK(r, me > 0 || memcmp(w->own, params, w->n * sizeof *params) == 0,
              "what was collected is not the model");
}

/* On one rank alone. */
static void walk_whole(const rig *r, whole *w, bits out[STEPS]) {
    for (int k = 0; k < STEPS && me == 0; k++) {
        uint32_t idx[TESTED];
        samples_of(r, k, idx, r->local[k % 2]);
        for (size_t i = 0; i < w->n; i++)
            w->own[i] = 0.5f;
        out[k].loss = whole_step(w, idx, r->local[k % 2], r->add ? w->own : NULL);
        out[k].gradient = hash(r->add ? w->own : w->grads, w->n);
    }
    CHECK_OK(gw_bcast(out, STEPS * (int)sizeof *out, MPI_BYTE, 0, MPI_COMM_WORLD));
}

/* The same without stages. */
static void walk_plain(const trial *t, const rig *r, whole *w, bits out[STEPS]) {
    trial p = *t;
    rig plain;
    char text[48];
    snprintf(text, sizeof text, "pipe=1,tensor=%d", r->mesh.shape.size[GW_DIM_TENSOR]);
    p.v[NEST] = 0;
    for (p.v[MESH] = 0; strcmp(mesh_of(&p), text) != 0;)
        p.v[MESH]++;
    p.v[TIMETABLE] = 0;
    p.v[RECOMPUTE] = 0;
    rig_open(&plain, &p);
    if (plain.pipeline)
        walk(&plain, &p, w, false, out);
    else
        walk_whole(r, w, out);
    rig_close(&plain);
}

static void try(const trial *t) {
    rig r;
    whole w;
    bits have[STEPS], want[STEPS];
    rig_open(&r, t);
    whole_open(&w, &r.spec);
    check_params(&r, &w);
    walk(&r, t, &w, true, have);
    if (is_exact(t)) {
        walk_plain(t, &r, &w, want);
        for (int k = 0; k < STEPS; k++)
            RIG_CHECK(&r, have[k].gradient == want[k].gradient && have[k].loss == want[k].loss,
                      "step %d: not the bits of one stage: loss %.17g, not %.17g", k, have[k].loss,
                      want[k].loss);
    }
    whole_close(&w);
    rig_close(&r);
}

/* ---- which ---- */

/* Is there a pipeline, has it something to encode, and does the timetable serve it? */
static bool legal(const trial *t) {
    gw_parallel p = parallel_of(t);
    gw_timetable *timetable = NULL;
    int stages = p.shape.size[GW_DIM_PIPE];
    if (!gw_mesh_divides(&p.shape) && (p.microbatches == 1 || !is_exact(t)))
        return false;
    gw_err e = gw_timetable_open(&timetable, p.timetable, stages, p.microbatches);
    CHECK(e == GW_OK || e == GW_ERR_UNSUPPORTED, "%s", gw_err_text());
    int runs = e == GW_OK ? stages * gw_timetable_chunks(timetable) : 0;
    gw_timetable_close(timetable);
    return e == GW_OK && runs <= 8 && (stages > 1 || runs == 1);
}

/* Take each trial that brings a new pair of values; the draws go on until, by far, none does. More
 * than 4 ranks, which share few cores, take each mesh with each nesting, timetable and split. */
static void try_pairs(int n_codecs) {
    enum { DRAWS = 20000, VALUES = 16 };
    static bool seen[FACTORS][VALUES][FACTORS][VALUES];
    int tried = 0;
    memset(seen, 0, sizeof seen);
    counts[ACTIVATIONS] = counts[DELTAS] = n_codecs;
    for (uint64_t i = 0; i < DRAWS; i++) {
        trial t;
        bool new = false;
        for (int f = 0; f < FACTORS; f++)
            t.v[f] = (int)(gw_rng_u64(gw_rng_key(17, i), (uint64_t)f) % (uint64_t)counts[f]);
        if (!legal(&t))
            continue;
        for (int f = 0; f < FACTORS; f++)
            for (int g = 0; g < f; g++) {
                if (ranks > 4 && (g != MESH || f > SPLIT))
                    continue;
                new |= !seen[f][t.v[f]][g][t.v[g]];
                seen[f][t.v[f]][g][t.v[g]] = true;
            }
        if (new)
            try(&t);
        tried += new;
    }
    CHECK(tried > 0, "nothing was tried");
    if (me == 0)
        printf("%d trials with %s codecs\n", tried, n_codecs == 1 ? "exact" : "all");
}

int main(int argc, char **argv) {
    static uint8_t images[SAMPLES * INPUTS];
    static gw_label labels[SAMPLES];
    check_start(argc, argv);
    omp_set_num_threads(1);
    for (int i = 0; i < SAMPLES * INPUTS; i++)
        images[i] = (uint8_t)gw_rng_u64(gw_rng_key(11, 0), (uint64_t)i);
    for (int i = 0; i < SAMPLES; i++)
        labels[i] = (gw_label)(gw_rng_u64(gw_rng_key(11, 1), (uint64_t)i) % CLASSES);
    set = (gw_dataset){SAMPLES, SAMPLES, 0, SAMPLES, 1, INPUTS, 1, INPUTS, images, labels, 1};
    CHECK_OK(new_session(&session, "allreduce", "none", "auto", false));
    list_meshes();
    list_timetables();
    try_pairs(1);
    if (ranks > 1)
        try_pairs(4);
    gw_session_free(session);
    MPI_Finalize();
    return 0;
}
