/* `gradwire train` prints this of a run as it goes, and at its end. */
#include "cli/train/train_job.h"

#include "nn/gemm.h"
#include "predict/chooser.h"
#include "roofline/gauge.h"

#include <math.h>
#include <stdio.h>

/* Beyond these a figure says more of the machine's disturbances than of what it is to measure: the
 * width of the overhead's interval, as a share of the step; batches whose interval is empty. */
#define WIDEST_OVERHEAD 0.2
#define MOST_FLAGGED    0.5

/* "2 ranks x 1 thread + 1 for progress", "4 ranks (data 2 x pipe 2 x tensor 1) x 1 thread" */
static void tell_put_place(const gw_train_teller *t, int ranks) {
    int threads = t->config->run.threads, helpers = t->helpers;
    const gw_mesh_shape *mesh = &t->config->parallel.shape;
    int pipe = mesh->size[GW_DIM_PIPE], tensor = mesh->size[GW_DIM_TENSOR];
    printf("%d rank%s", ranks, ranks == 1 ? "" : "s");
    if (gw_mesh_divides(mesh))
        printf(" (data %d x pipe %d x tensor %d)", ranks / (pipe * tensor), pipe, tensor);
    printf(" x %d thread%s", threads, threads == 1 ? "" : "s");
    if (helpers > 0)
        printf(" + %d for progress", helpers);
}

static void tell_say_busy(const char *when, const gw_busy *b) {
    char text[GW_BUSY_TEXT];
    gw_busy_text(b, text, sizeof text);
    if (gw_busy_warns(b))
        printf("warning: %s this run %s: its times are not to be trusted\n", when, text);
}

static void tell_say_start(const gw_train_teller *t, const gw_train_status *s) {
    const gw_train_config *c = t->config;
    const gw_data *d = s->data;
    gw_inside_facts is = gw_inside_know(t->g);
    const char *rule = is.rule ? is.rule : "";
    printf("%s: %u training, %u validation, %u test samples of %d inputs, %d classes\n", d->name,
           d->train.n_global, d->validation.n_global, d->test.n_global,
           gw_dataset_features(&d->train), d->classes);
    printf("%zu parameters; ", s->parameters);
    tell_put_place(t, s->ranks);
    printf("; %s over %s, %s%s", is.strategy, is.algorithm,
           gw_chooser_chooses(t->choice) ? is.codec->spec : c->run.compress->text,
           is.unmet->idle ? " (not encoded here)" : "");
    if (is.feedback)
        printf(" with error feedback%s%s%s", *rule ? " (" : "", rule, *rule ? ")" : "");
    printf("; GEMM by %s\n", gw_gemm_library());
    gw_unmet_print(is.unmet, NULL, stdout);
    if (gw_gemm_warning())
        printf("note: %s\n", gw_gemm_warning());
    fputs(is.notes, stdout);
    gw_notes_print(s->notes, stdout);
    if (s->oversubscribed)
        printf("note: oversubscribed: more threads than cores, waits give the core away and times "
               "say little\n");
    tell_say_busy("before", s->busy);
}

/* All parts are of the steps that the step time is of, so they add up to it. */
static void tell_say_step_time(const gw_train_result *r, gw_profile profile) {
    const gw_batch_summary *b = &r->total.summary;
    if (b->kept.steps == 0) {
        printf("step absent: the exchange repeats after %lld steps, the run has %lld after "
               "warm-up; train longer\n",
               (long long)b->kept.period, (long long)b->batches);
        return;
    }
    printf("step %.1f us (%s of %lld", b->wall_s * 1e6, gw_steady_name(&b->kept),
           (long long)(b->kept.trimmed ? b->batches : b->kept.steps));
    if (b->kept.period > 1)
        printf(" in whole periods of %lld", (long long)b->kept.period);
    printf(")");
    if (profile == GW_PROFILE_OFF) {
        printf("; its parts were not measured (--profile off)\n");
        return;
    }
    const double *p = b->phase_s;
    double compute = gw_phases_computation(p);
    double exposed = p[GW_PHASE_MPI_POST] + p[GW_PHASE_MPI_POLL] + p[GW_PHASE_MPI_WAIT];
    double codec = p[GW_PHASE_ENCODE] + p[GW_PHASE_DECODE];
    printf(": data %.1f, computation %.1f, exposed communication %.1f", p[GW_PHASE_DATA] * 1e6,
           compute * 1e6, exposed * 1e6);
    double rest = exposed - b->waiting_s - b->transfer_s; /* negative if steps lack these two */
    if (rest >= 0)
        printf(" (waiting %.1f, transfer %.1f, other in MPI %.1f)", b->waiting_s * 1e6,
               b->transfer_s * 1e6, rest * 1e6);
    printf(", codec %.1f", codec * 1e6);
    if (p[GW_PHASE_CHECKPOINT] > 0)
        printf(", checkpoint %.1f", p[GW_PHASE_CHECKPOINT] * 1e6);
    printf(", other %.1f; in flight under computation %.1f us; %.0f wire bytes a rank",
           p[GW_PHASE_OTHER] * 1e6, b->inflight_s * 1e6, b->wire_bytes);
    if (isfinite(r->bubble_s))
        printf("; bubble %.1f us, %.1f%% of the step", r->bubble_s * 1e6,
               100 * r->bubble_s / b->wall_s);
    printf("\n");
}

/* What the one step time stands for. */
static void tell_say_spread(const gw_batch_summary *b) {
    const gw_steady_doubt *d = &b->doubt;
    printf("its steps: %.1f to %.1f us (10th to 90th percentile); ", d->p10 * 1e6, d->p90 * 1e6);
    if (isnan(b->interrupted))
        printf("interrupted steps: absent\n");
    else
        printf("in %.1f%% of them a rank was interrupted\n", 100 * b->interrupted);
    if (gw_steady_doubts(d))
        printf("warning: the step time is unsettled, halves of its steps disagree: odd blocks take "
               "%.1f us, even ones %.1f, the first half %.1f, the last %.1f; repeat on a quieter "
               "machine, or with more steps\n",
               d->odd * 1e6, d->even * 1e6, d->first * 1e6, d->last * 1e6);
}

/* By the best source; twins and model add up to one interval. */
static void tell_say_memory(const gw_train_result *r) {
    const gw_batch_summary *b = &r->total.summary;
    const gw_batch_split *s = &b->split;
    double flagged = (double)r->flagged / (double)r->split;
    if (b->source == GW_SPLIT_CTR)
        printf("memory-bound %.1f us (ctr)\n", s->memory_ctr_s * 1e6);
    else if (b->source == GW_SPLIT_TWIN_MODEL && flagged > MOST_FLAGGED)
        printf("memory-bound: not measurable here: in %.0f%% of the batches the products took less "
               "than alone on hot operands, so those were slowed down; repeat on a quieter "
               "machine, or with hardware counters\n",
               100 * flagged);
    else if (b->source == GW_SPLIT_TWIN_MODEL && isfinite(s->memory_model_lo_s))
        printf("memory-bound %.1f..%.1f us (twin+model, consistent in %.0f%% of the batches)\n",
               (s->memory_twin_s + s->memory_model_lo_s) * 1e6,
               (s->memory_twin_s + s->memory_model_hi_s) * 1e6, 100 * (1 - flagged));
    else if (b->source == GW_SPLIT_TWIN_MODEL)
        printf("memory-bound at least %.1f us (twin; the model has no interval for products)\n",
               s->memory_twin_s * 1e6);
}

static void tell_say_overhead(const gw_overhead *o) {
    const gw_stats *ratio = &o->ratio;
    if (o->pairs == 0)
        return;
    if (ratio->ci_high - ratio->ci_low > WIDEST_OVERHEAD)
        printf("own overhead: not measurable here: %d pairs of steps with and without probes "
               "differ by too much; repeat on a quieter machine, or with more pairs (--overhead "
               "PAIRS)\n",
               o->pairs);
    else if (isfinite(ratio->ci_low))
        printf("own overhead: %+.2f%% of a step (95%%: %+.2f to %+.2f), by %d pairs of steps with "
               "and without probes\n",
               100 * (ratio->median - 1), 100 * (ratio->ci_low - 1), 100 * (ratio->ci_high - 1),
               o->pairs);
    else
        printf("own overhead: %+.2f%% of a step, by %d pairs of steps with and without probes\n",
               100 * (ratio->median - 1), o->pairs);
}

/* Say what was learnt, and which model was kept. */
static void tell_say_model(const gw_train_config *c, const gw_train_result *r) {
    if (r->left_out > 0) {
        char first[200];
        gw_fault_text(first, sizeof first, &r->first_fault, NULL);
        printf("left out %lld step%s of %lld; the first: %s\n", (long long)r->left_out,
               r->left_out == 1 ? "" : "s", (long long)r->steps, first);
    }
    gw_unmet_print(&r->unmet, &r->told, stdout);
    if (isnan(r->last.test_accuracy))
        printf("not evaluated (the signal left no time for it)");
    else
        printf("test accuracy %.4f", r->last.test_accuracy);
    printf(" after %lld step%s in %.1f s; %s (crc32 %08x)\n", (long long)r->steps,
           r->steps == 1 ? "" : "s", r->total.elapsed_s,
           r->ranks == 1 ? "one replica" : "replicas equal", r->last.replica_hash);
    if (c->keep.model == GW_SAVE_BEST && r->best.epoch == 0)
        printf("no model.gw: no epoch was validated\n");
    else if (c->keep.model == GW_SAVE_BEST)
        printf("model.gw is that of epoch %d: least validation loss, %.4f; test accuracy %.4f\n",
               r->best.epoch, r->best.validation_loss, r->best.test_accuracy);
}

static void tell_say_end(const gw_train_teller *t, const gw_train_result *r) {
    const gw_straggler *late = &r->total.straggler;
    const gw_link_cost *link = &r->total.link_cost;
    const gw_checkpoint_counts *n = &r->checkpoints;
    double step_s = r->total.summary.wall_s;
    tell_say_step_time(r, t->config->run.profile);
    tell_say_spread(&r->total.summary);
    tell_say_busy("during", &r->total.during);
    if (t->choice) {
        double predicted_s = t->choice->candidate[t->choice->chosen].step_s;
        printf("predicted step %.1f us: %.2f of the measured\n", predicted_s * 1e6,
               predicted_s / t->choice->measured_s);
    }
    if (r->bound_s > 0)
        printf("bound of a step (%s): %.1f us; the measured step takes %.2f times that\n",
               gw_bound_name(r->bound_mode), r->bound_s * 1e6, step_s / r->bound_s);
    tell_say_memory(r);
    tell_say_overhead(r->overhead);
    if (late->rank >= 0) /* of all steps: rare long waits are what a straggler is noticed by */
        printf("rank %d holds the others up: each other rank waits for it %.1f us per step (%.0f%% "
               "of the step), %.0f%% of all waiting for late ranks, by means over all steps, rare "
               "long ones included\n",
               late->rank, late->waited_s * 1e6, 100 * late->of_step, 100 * late->of_waiting);
    if (fabs(r->ceilings_drift) > GW_GAUGE_DRIFT)
        printf("warning: the machine changed while this ran: multiply-adds are %.0f%% %s than "
               "before the first step; do not compare this run\n",
               100 * fabs(r->ceilings_drift), r->ceilings_drift < 0 ? "slower" : "faster");
    if (link->warns)
        printf("warning: the links' interrupts took %.0f%% of a core for each rank that trains: "
               "overlap gains less here than over real links\n",
               100 * link->cores);
    if (n->written + n->failed > 0) {
        printf("%lld checkpoint%s", (long long)n->written, n->written == 1 ? "" : "s");
        if (n->late > 0)
            printf(", %lld later than due, since the one before was still being written",
                   (long long)n->late);
        if (n->failed > 0)
            printf("; %lld could not be written", (long long)n->failed);
        printf("\n");
    }
    tell_say_model(t->config, r);
    if (t->config->run.out)
        printf("run folder: %s\n", t->config->run.out);
}

static void tell_say_check(const gw_train_teller *t, const gw_train_result *r) {
    const gw_train_config *c = t->config;
    printf("a run could start: %zu parameters; ", r->parameters);
    tell_put_place(t, r->ranks);
    printf("; --comm %s --compress %s\n", c->run.comm->text, c->run.compress->text);
    gw_unmet_print(&r->unmet, NULL, stdout);
}

/* After a run that did not fail, a mere check included. */
static void tell_end(const gw_train_teller *teller, const gw_train_result *r) {
    bool taken = r->steps > 0 || !r->signal;
    if (!teller->quiet && taken)
        (teller->config->check ? tell_say_check : tell_say_end)(teller, r);
    /* Whatever --quiet says: why the status is not 0. */
    if (r->signal && r->steps > 0)
        fprintf(stderr, "gradwire: stopped by %s after step %lld\n", r->stopped_by,
                (long long)r->steps);
    else if (r->signal)
        fprintf(stderr, "gradwire: stopped by %s before the first step: nothing was written\n",
                r->stopped_by);
}

void gw_train_tell(void *ctx, const gw_train_status *s) {
    gw_train_teller *t = ctx;
    double every_s = t->terminal ? 0.2 : 10; /* a log should not scroll away */
    if (s->result) {
        tell_end(t, s->result);
        return;
    }
    if (t->quiet)
        return;
    if (s->warning) {
        printf("%swarning: %s\n", t->terminal ? "\r\033[K" : "", s->warning);
        fflush(stdout);
    }
    if (s->begins) {
        tell_say_start(t, s);
    } else if (s->epoch_end) {
        if (t->terminal)
            printf("\r\033[K");
        printf("epoch %d/%d: step %lld, loss %.4f", s->epoch, s->epochs, (long long)s->step,
               s->loss);
        if (!isnan(s->last.test_accuracy)) /* NaN: a signal left no time for it */
            printf(", test loss %.4f, test accuracy %.4f", s->last.test_loss,
                   s->last.test_accuracy);
        if (!isnan(s->last.validation_accuracy))
            printf(", validation accuracy %.4f", s->last.validation_accuracy);
        printf(", %.0f samples/s, %.1f s\n", s->samples_per_s, s->elapsed_s);
    } else if (s->elapsed_s - t->last_s >= every_s) {
        double left = s->elapsed_s / (double)s->step * (double)(s->steps - s->step);
        printf("%sepoch %d/%d, step %lld/%lld", t->terminal ? "\r\033[K" : "", s->epoch, s->epochs,
               (long long)s->step, (long long)s->steps);
        if (!isnan(s->loss))
            printf(", loss %.4f", s->loss);
        printf(", %.0f samples/s, %.0f s left%s", s->samples_per_s, left, t->terminal ? "" : "\n");
    } else {
        return;
    }
    t->last_s = s->elapsed_s;
    fflush(stdout);
}
