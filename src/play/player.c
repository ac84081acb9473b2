#include "play/player.h"

#include "base/mem.h"
#include "base/nap.h"
#include "base/text.h"

#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define POLL_S  1e-4 /* between two polls of a host that waits for its device */
#define TAKEN_S 1e-6 /* between two readings of the clock, of some 30 ns: the core was taken away */
#define RATE    1e-3F
/* DistributedDataParallel's first bucket is smaller, for the exchange to begin early. */
#define FIRST_BUCKET ((size_t)1 << 20)

#define TRY(call)                                                                                  \
    do {                                                                                           \
        int try_ = (call);                                                                         \
        if (try_ < 0)                                                                              \
            return try_;                                                                           \
    } while (0)

int gw_player_declare(gradwire *g, const gw_step_profile *profile, size_t most) {
    for (int t = 0; t < profile->n_tensors; t++) {
        const gw_step_tensor *of = &profile->tensor[t];
        bool cut = most && of->n > most;
        TRY(gradwire_tensor(g, of->name, of->group, cut ? most : of->n, cut ? 0 : of->rows, NULL));
    }
    return 0;
}

/* ---- the device ---- */

/* Another device computes on, whatever this core does meanwhile: its ends are instants, so that a
 * nap that lasts too long makes the next one shorter. */
static int player_sleep(gw_player *p) {
    for (double now; (now = gw_nap_now()) < p->due_s;) {
        gw_nap_in_time(fmin(p->due_s, now + POLL_S), &p->wake_s);
        TRY(gradwire_poll(p->g));
        if (p->due_s - gw_nap_now() < p->wake_s)
            while (gw_nap_now() < p->due_s)
                sched_yield();
    }
    return 0;
}

/* What was given to the device so far is over, at the earliest now. */
static void player_restart(gw_player *p) {
    p->due_s = fmax(p->due_s, gw_nap_now());
}

/* What the kernel takes of the core, above all for messages, makes computation last longer. */
static void player_spin(double seconds) {
    double last = gw_nap_now();
    while (seconds > 0) {
        double now = gw_nap_now(), gap = now - last;
        seconds -= gap < TAKEN_S ? gap : 0;
        last = now;
    }
}

static int player_compute(gw_player *p, double seconds) {
    if (p->sleeps) {
        p->due_s += seconds / p->speed;
        return player_sleep(p);
    }
    player_spin(seconds / p->speed);
    return gradwire_poll(p->g);
}

/* ---- a step ---- */

/* The owned pieces move by their gradients, where what is sent depends on that. */
static void player_move(const gw_player *p, int group) {
    int t;
    size_t from, n;
    for (int i = 0; gradwire_owned(p->g, i, &t, &from, &n) == 1; i++) {
        float *param = gradwire_memory(p->g, t, GRADWIRE_PARAM);
        if (!param || (group != GRADWIRE_ALL && p->profile->tensor[t].group != group))
            continue;
        for (size_t k = from; k < from + n; k++)
            param[k] -= RATE * p->grad[t][k];
    }
}

/* The end of a group's exchange, or of all of them. */
static int player_update(gw_player *p, int group) {
    int updates = gradwire_finish(p->g, group);
    TRY(updates);
    TRY(gradwire_phase(p->g, GRADWIRE_UPDATE));
    if (updates) {
        double share = 0;
        for (int k = 0; k < p->profile->groups; k++)
            share += group == GRADWIRE_ALL || group == k ? p->owned[k] : 0;
        player_restart(p);
        double begun_s = gw_nap_now();
        if (p->moves)
            player_move(p, group);
        double left_s = share * p->profile->optimizer_s - p->speed * (gw_nap_now() - begun_s);
        TRY(player_compute(p, p->sleeps ? share * p->profile->optimizer_s : fmax(0, left_s)));
    }
    return gradwire_updated(p->g, group);
}

static int player_forward(gw_player *p) {
    const gw_step_profile *of = p->profile;
    TRY(gradwire_phase(p->g, GRADWIRE_FORWARD));
    for (int t = 0, group = -1; t < of->n_tensors; t++) {
        if (of->tensor[t].group != group) {
            group = of->tensor[t].group;
            if (p->lazy && p->step > 0) {
                TRY(player_update(p, group));
                TRY(gradwire_phase(p->g, GRADWIRE_FORWARD));
            }
            TRY(gradwire_await(p->g, group));
            player_restart(p);
        }
        TRY(player_compute(p, p->serves ? 0 : of->tensor[t].forward_s));
    }
    return 0;
}

/* Gradient t is there: announce it with those that wait for their bucket to be full. */
static int player_announce(gw_player *p, int t) {
    size_t limit = p->filling.first && p->bucket > FIRST_BUCKET ? FIRST_BUCKET : p->bucket;
    p->filling.tensor[p->filling.n] = t;
    p->filling.grad[p->filling.n++] = p->grad[t];
    p->filling.bytes += p->profile->tensor[t].n * sizeof(float);
    if (t > 0 && p->filling.bytes < limit)
        return 0;
    int n = p->filling.n;
    p->filling.n = 0;
    p->filling.bytes = 0;
    p->filling.first = false;
    return gradwire_ready(p->g, n, p->filling.tensor, p->filling.grad);
}

static int player_backward(gw_player *p) {
    const gw_step_profile *of = p->profile;
    TRY(gradwire_phase(p->g, GRADWIRE_BACKWARD));
    p->filling.first = true;
    for (int t = of->n_tensors - 1; t >= 0; t--) {
        double begun_s = gw_nap_now();
        if (!p->serves)
            gw_gradients_write(p->gradients, t, p->at[t], p->step, p->grad[t]);
        double spent_s = p->sleeps ? 0 : p->speed * (gw_nap_now() - begun_s);
        TRY(player_compute(p, p->serves ? 0 : fmax(0, of->tensor[t].backward_s - spent_s)));
        TRY(player_announce(p, t));
    }
    p->late_s += p->sleeps ? fmax(0, gw_nap_now() - p->due_s) : 0;
    return 0;
}

static int player_step(gw_player *p) {
    long batch = p->profile->batch;
    TRY(gradwire_begin(p->g, p->serves ? 0 : batch, batch * (p->ranks - p->servers)));
    player_restart(p);
    TRY(player_forward(p));
    TRY(player_backward(p));
    if (!p->lazy)
        TRY(player_update(p, GRADWIRE_ALL));
    return gradwire_end(p->g, 0);
}

/* ---- a run ---- */

static size_t player_bytes(const gw_player *p) {
    return p->profile->n * sizeof *p->own;
}

static int player_share(gw_player *p) {
    off_t bytes = (off_t)player_bytes(p);
    p->file = memfd_create("gradients", MFD_CLOEXEC);
    if (p->file >= 0 && posix_fallocate(p->file, 0, bytes) == 0)
        p->own = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, p->file, 0);
    if (p->own && p->own != MAP_FAILED)
        return 0;
    p->own = NULL;
    return gw_fail(GW_ERR_NOMEM, "replay: cannot make %jd bytes of shared memory", (intmax_t)bytes);
}

static int player_memory(gw_player *p) {
    const gw_step_profile *of = p->profile;
    size_t tensors = (size_t)of->n_tensors;
    TRY(gw_alloc(&p->at, tensors, sizeof *p->at));
    TRY(gw_alloc(&p->grad, tensors, sizeof *p->grad));
    TRY(gw_alloc(&p->filling.tensor, tensors, sizeof *p->filling.tensor));
    TRY(gw_alloc(&p->filling.grad, tensors, sizeof *p->filling.grad));
    TRY(gw_alloc(&p->owned, (size_t)of->groups, sizeof *p->owned));
    const char *in_place = gradwire_text(p->g, "in_place");
    p->lends = in_place && strcmp(in_place, "yes") == 0;
    TRY(p->lends ? player_share(p) : gw_alloc(&p->own, of->n, sizeof *p->own));
    size_t at = 0;
    for (int t = 0; t < of->n_tensors; at += of->tensor[t++].n) {
        p->at[t] = at;
        p->grad[t] = p->own + at;
    }
    return 0;
}

int gw_player_open(gw_player *p, gradwire *g) {
    const char *shape = gradwire_text(g, "shape");
    int more, t;
    size_t n;
    p->g = g;
    gw_nap_lightly();
    if (p->sleeps)
        gw_nap_instead();
    TRY(player_memory(p));
    p->moves = shape && strcmp(shape, "parameters") == 0;
    for (int i = 0; (more = gradwire_owned(g, i, &t, NULL, &n)) == 1; i++)
        p->owned[p->profile->tensor[t].group] += (double)n / (double)p->profile->n;
    return more;
}

int gw_player_run(gw_player *p) {
    int lent = p->lends ? gradwire_lend(p->g, p->own, player_bytes(p), p->file) : 1;
    TRY(lent);
    if (!lent)
        gw_text_copy(p->copied, sizeof p->copied, gradwire_error());
    double since_s = NAN;
    for (p->step = 0; p->step < p->steps; p->step++) {
        TRY(player_step(p));
        since_s = p->step == 0 ? gw_nap_now() : since_s;
    }
    p->step_s = (gw_nap_now() - since_s) / (double)(p->steps - 1);
    if (p->lazy && p->steps > 0) /* what the next forward pass would have ended */
        TRY(player_update(p, GRADWIRE_ALL));
    return gradwire_settle(p->g);
}

void gw_player_free(gw_player *p) {
    free(p->at);
    free(p->grad);
    free(p->filling.tensor);
    free(p->filling.grad);
    if (p->lends && p->own)
        munmap(p->own, player_bytes(p));
    else
        free(p->own);
    if (p->lends && p->file >= 0)
        close(p->file);
    free(p->owned);
}
