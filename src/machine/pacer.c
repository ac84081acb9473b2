#include "machine/pacer.h"

#include "base/file.h"
#include "base/json.h"
#include "base/nap.h"
#include "base/rng.h"
#include "machine/host.h"
#include "mpi/agree.h"
#include "mpi/wait.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

enum {
    NAPS = 31,
    NAP_NS = 300000,
    LEAST_REST_NS = 20000, /* between two tests of a wait */
    MOST_REST_NS = 1000000
};
#define FIRST_ANSWER_S 1e-3 /* guess of what a meeting takes */
#define MARGIN_S       2e-4

void gw_pacer_close(gw_pacer *p) {
    for (int i = 0; p && i < p->n_tapes; i++) {
        free(p->tape[i].pieces);
        gw_samples_free(&p->tape[i].s);
    }
    if (p)
        json_decref(p->shares);
    free(p);
}

/* ---- what a paced run needs ---- */

/* A number of the kernel that this process runs on, the same in all its name spaces; 0: not known.
 */
static uint64_t pacer_kernel(void) {
    char id[64];
    uint64_t key = 0;
    if (gw_file_first_line("/proc/sys/kernel/random/boot_id", id, sizeof id))
        for (const char *c = id; *c; c++)
            key = gw_rng_key(key, (uint64_t)*c);
    return key >> 1; /* fits a signed number, too */
}

gw_err gw_pacer_check(int threads, MPI_Comm comm) {
    gw_host host;
    gw_host_facts(&host);
    int64_t kernel = (int64_t)pacer_kernel(), most[2] = {kernel, -kernel};
    GW_TRY(gw_allreduce(MPI_IN_PLACE, most, 2, MPI_INT64_T, MPI_MAX, comm));
    if (most[0] != -most[1] || most[0] == 0)
        return gw_fail(GW_ERR_UNSUPPORTED, "train: --pace emulates hosts on one machine, by whose "
                                           "clock all ranks start their steps, and these ranks run "
                                           "on several: start them on one");
    int cores = host.cores_usable > 0 ? host.cores_usable : host.cpus_usable;
    if (host.cpu_quota > 0 && host.cpu_quota < cores)
        cores = (int)host.cpu_quota;
    return gw_agree(comm, threads <= cores
                              ? GW_OK
                              : gw_fail(GW_ERR_UNSUPPORTED,
                                        "train: --pace times a rank's computation while all others "
                                        "sleep, and its %d threads have %d core%s: give fewer "
                                        "--threads",
                                        threads, cores, cores == 1 ? "" : "s"));
}

double gw_pacer_wake(void) {
    double over[NAPS];
    for (int i = 0; i < NAPS; i++) {
        double due = gw_nap_now() + NAP_NS * 1e-9;
        gw_nap_until(due);
        over[i] = gw_nap_now() - due;
    }
    return gw_stats_median(over, NAPS);
}

/* Asleep between two tests, the longer the longer it takes. */
static gw_err pacer_wait(MPI_Request *request) {
    long rest = LEAST_REST_NS;
    for (int done = 0;; rest += rest < MOST_REST_NS ? rest / 4 : 0) {
        GW_MPI(MPI_Test(request, &done, MPI_STATUS_IGNORE));
        if (done)
            return GW_OK;
        nanosleep(&(struct timespec){.tv_nsec = rest}, NULL);
    }
}

/* ---- the start of a step, and its end ---- */

/* Exact, but for a thread that waits for a core: it has been there early, and then gives its core
 * to whoever wants it. */
static void pacer_sleep_until(gw_pacer *p, double due_s) {
    gw_nap_in_time(due_s, &p->wake_s);
    while (gw_nap_now() < due_s)
        sched_yield();
}

static gw_err pacer_meet(gw_pacer *p) {
    double all[3] = {gw_nap_now(), -p->behind_s, p->answered_s};
    MPI_Request request;
    GW_MPI(MPI_Iallreduce(MPI_IN_PLACE, all, 3, MPI_DOUBLE, MPI_MAX, p->comm, &request));
    GW_TRY(pacer_wait(&request));
    p->answered_s = gw_nap_now() - all[0];
    p->behind_s += all[1];
    p->agreed_s = all[0] + 2 * all[2] + MARGIN_S;
    return GW_OK;
}

gw_err gw_pacer_begin(gw_pacer *p, int samples) {
    p->playing = NULL;
    for (int i = 0; i < p->n_tapes; i++)
        if (p->tape[i].samples == samples)
            p->playing = &p->tape[i];
    if (!p->playing)
        return gw_fail(GW_ERR_INTERNAL, "pace: no time was measured of %d samples", samples);
    if (p->steps == 0)
        p->answered_s = FIRST_ANSWER_S;
    GW_TRY(pacer_meet(p));
    p->segment = p->piece = 0;
    double due = p->agreed_s + p->behind_s;
    pacer_sleep_until(p, due);
    p->start_s = gw_nap_now();
    p->late_s = 0; /* made up for, it would be missing in the step */
    p->latest_s = p->start_s - due;
    return GW_OK;
}

void gw_pacer_end(gw_pacer *p, bool meets) {
    p->behind_s = meets ? 0 : p->behind_s + gw_nap_now() - p->start_s;
    p->late_sum_s += p->latest_s;
    p->steps++;
}

/* ---- within a step ---- */

/* A piece that another follows ends when its sleep does, early or late: the poll there is in no
 * hurry. */
static void pacer_piece(gw_pacer *p, double seconds, bool last) {
    double due = gw_nap_now() - p->late_s + seconds;
    if (last)
        pacer_sleep_until(p, due);
    else
        gw_nap_in_time(due, &p->wake_s);
    p->late_s = gw_nap_now() - due;
    if (last && p->late_s > p->latest_s)
        p->latest_s = p->late_s;
}

/* A slower core would cut its products into more pieces, for as many polls a second. */
void gw_pacer_segment(gw_pacer *p, bool loosely) {
    int n = p->playing->pieces[p->segment++];
    int parts = p->poll && p->factor > 1 ? (int)ceil(p->factor) : 1;
    for (int i = 0; i < n * parts; i++) {
        double s = p->factor * p->playing->s.x[p->piece + i / parts] / parts;
        bool last = i == n * parts - 1;
        pacer_piece(p, s, last && !loosely);
        if (!last && p->poll)
            p->poll(p->ctx);
    }
    p->piece += n;
}

void gw_pacer_settle(gw_pacer *p) {
    pacer_piece(p, 0, true);
}

void gw_pacer_rest(gw_pacer *p, double since_s, double seconds) {
    pacer_piece(p, seconds - (gw_nap_now() - since_s), true);
}

void gw_pacer_between(gw_pacer *p, void (*f)(void *ctx), void *ctx) {
    p->poll = f;
    p->ctx = ctx;
}

void gw_pacer_spent(gw_pacer *p, double seconds) {
    p->late_s += seconds;
}

void gw_pacer_waited(gw_pacer *p, double seconds) {
    p->late_s = fmax(0, p->late_s - seconds);
}

double gw_pacer_update_s(const gw_pacer *p, size_t n) {
    return p->factor * p->playing->update_s * (double)n / (double)p->parameters;
}

/* ---- run.json ---- */

/* Of the next `n` segments. */
static double tape_seconds(const gw_tape *t, int *segment, int *piece, int n) {
    double sum = 0;
    for (; n > 0; n--)
        for (int i = t->pieces[(*segment)++]; i > 0; i--)
            sum += t->s.x[(*piece)++];
    return sum;
}

/* Of a whole model: each layer has as many segments as any other. */
static json_t *tape_json(const gw_tape *t) {
    const int *n = t->in_phase;
    int layers = n[GW_PHASE_FORWARD] - 1, segment = 0, piece = 0; /* and the loss */
    if (layers < 0)
        return gw_json_object("batch:i compute_s:f update_s:f pieces:i repetitions:i", t->samples,
                              tape_seconds(t, &segment, &piece, 1), t->update_s, t->s.n,
                              t->repetitions);
    json_t *forward = json_array(), *backward = json_array();
    double data_s = tape_seconds(t, &segment, &piece, n[GW_PHASE_DATA]);
    for (int l = 0; l < layers; l++)
        json_array_append_new(forward, gw_json_number(tape_seconds(t, &segment, &piece, 1)));
    double loss_s = tape_seconds(t, &segment, &piece, 1);
    int each = n[GW_PHASE_BACKWARD] / layers;
    for (int l = 0; l < layers; l++)
        json_array_insert_new(backward, 0, gw_json_number(tape_seconds(t, &segment, &piece, each)));
    return gw_json_object(
        "batch:i data_s:f forward_s:o loss_s:f backward_s:o update_s:f pieces:i repetitions:i",
        t->samples, data_s, forward, loss_s, backward, t->update_s, t->s.n, t->repetitions);
}

json_t *gw_pacer_json(const gw_pacer *p, double late_s, double outside_s) {
    if (!p)
        return json_null();
    json_t *measured = p->shares ? json_incref(p->shares) : json_array();
    for (int i = 0; i < p->n_tapes && !p->shares; i++)
        json_array_append_new(measured, tape_json(&p->tape[i]));
    return gw_json_object(
        "factor:f arithmetic:s measured_by:o measured:o wake_s:f late_s:f outside_s:f", p->factor,
        "outside the clock", p->shares ? json_null() : json_integer(p->measured_by), measured,
        p->wake_s, late_s, outside_s);
}
