#include "record/live.h"

#include "base/mem.h"
#include "base/version.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PARTS = 4, MOST = 16 /* metrics of a line */ };

/* A metric of a step: the sum of some columns of batches.csv. */
typedef struct live_metric {
    const char *name, *column[PARTS];
} live_metric;

static const live_metric of_step[] = {
    {"step/wall_s", {"wall_s"}},
    {"step/compute_s", {"forward_s", "backward_s", "recompute_s", "update_s"}},
    {"step/exposed_s", {"mpi_post_s", "mpi_poll_s", "mpi_wait_s"}},
    {"step/codec_s", {"encode_s", "decode_s"}},
    {"step/hidden_s", {"inflight_s"}},
    {"step/wire_bytes", {"wire_bytes"}}};
enum { OF_STEP = sizeof of_step / sizeof *of_step };

typedef struct live_value {
    const char *name;
    double x; /* NaN: not known, and left out */
} live_value;

struct gw_live {
    FILE *out;
    char path[4200];
    bool begun, ended, uncut; /* uncut: what an earlier run left could not go */
    double flushed_s;
    gw_batch_table table;
    int every, n, epoch; /* n: steps since the last line, whose sums these are: */
    int64_t step;
    double loss, samples, sum[OF_STEP];
};

static const char json[] = "json:";
enum { FORM = sizeof json - 1 };

gw_err gw_live_check(const char *where, const char *owner) {
    if (!where || (strncmp(where, json, FORM) == 0 && where[FORM]))
        return GW_OK;
    return gw_fail(GW_ERR_USAGE,
                   "%s: --log %s: must be json:FILE; `gradwire tensorboard FILE DIR` writes event "
                   "files of it",
                   owner, where);
}

static double live_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

gw_err gw_live_open(gw_live **out, const char *where, int every) {
    struct stat of;
    gw_live *l = NULL;
    if (strlen(where + FORM) >= sizeof l->path)
        return gw_fail(GW_ERR_INPUT, "--log %s: the path is too long", where);
    GW_TRY(gw_alloc(&l, 1, sizeof *l));
    *l = (gw_live){.every = every};
    strcpy(l->path, where + FORM);
    gw_batch_table_make(&l->table, false, NULL, 0);
    /* O_NONBLOCK: a pipe that nobody reads would never open. */
    int fd = open(l->path, O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_CLOEXEC, 0666);
    gw_err e = fd < 0 && errno != ENXIO
                   ? gw_fail(GW_ERR_INPUT, "--log %s: %s: %s", where, l->path, strerror(errno))
                   : GW_OK;
    l->out = fd >= 0 && fstat(fd, &of) == 0 && S_ISREG(of.st_mode) ? fdopen(fd, "a") : NULL;
    if (e == GW_OK && !l->out)
        e = gw_fail(GW_ERR_INPUT,
                    "--log %s: %s: no regular file: name one, and follow it by tail -F", where,
                    l->path);
    if (fd >= 0 && !l->out)
        close(fd);
    GW_OPENED(e, out, l, free);
}

/* ---- lines ---- */

static void live_put(gw_live *l, const char *event, const live_value *v, int n) {
    const char *comma = "";
    fprintf(l->out, "{\"event\":\"%s\",\"time\":%.3f,\"epoch\":%d,\"step\":%lld,\"metrics\":{",
            event, live_now(), l->epoch, (long long)l->step);
    for (int i = 0; i < n; i++) {
        if (!isfinite(v[i].x))
            continue;
        fprintf(l->out, "%s\"%s\":%.15g", comma, v[i].name, v[i].x);
        comma = ",";
    }
    fputs("}}\n", l->out);
    if (live_now() - l->flushed_s >= 1) {
        fflush(l->out);
        l->flushed_s = live_now();
    }
}

void gw_live_begin(gw_live *l, json_t *options, int ranks, int64_t step, bool resumes) {
    if (l) {
        l->uncut = !resumes && ftruncate(fileno(l->out), 0) != 0;
        fprintf(l->out,
                "{\"event\":\"begin\",\"time\":%.3f,\"schema\":1,\"version\":\"%s\",\"ranks\":%d,"
                "\"step\":%lld,\"resumes\":%s,\"options\":",
                live_now(), GW_VERSION, ranks, (long long)step, resumes ? "true" : "false");
        json_dumpf(options, l->out, JSON_COMPACT);
        fputs("}\n", l->out);
        l->begun = true;
        fflush(l->out);
    }
    json_decref(options);
}

/* The means of the steps since the last line. */
static void live_put_steps(gw_live *l) {
    live_value v[OF_STEP + 1] = {{"train/loss", l->loss / l->samples}};
    for (int i = 0; i < OF_STEP; i++)
        v[i + 1] = (live_value){of_step[i].name, l->sum[i] / l->n};
    live_put(l, "step", v, OF_STEP + 1);
    l->n = 0;
    l->loss = l->samples = 0;
    memset(l->sum, 0, sizeof l->sum);
}

void gw_live_step(gw_live *l, const gw_batch_row *row) {
    if (!l)
        return;
    l->step = row->step;
    l->epoch = row->epoch;
    if (!isnan(row->loss)) {
        l->loss += row->loss * row->samples;
        l->samples += row->samples;
    }
    for (int i = 0; i < OF_STEP; i++)
        for (int p = 0; p < PARTS && of_step[i].column[p]; p++)
            l->sum[i] += gw_table_number(&l->table.table, row, of_step[i].column[p]);
    if (++l->n == l->every)
        live_put_steps(l);
}

static gw_err live_flush(gw_live *l) {
    bool written = fflush(l->out) == 0 && !ferror(l->out) && !l->uncut;
    return written ? GW_OK
                   : gw_fail(GW_ERR_IO, "--log: cannot write %s: is the disk full?", l->path);
}

gw_err gw_live_epoch(gw_live *l, const gw_epoch_row *row) {
    if (!l)
        return GW_OK;
    live_value v[MOST];
    char name[MOST][48];
    int n = 0;
    if (l->n > 0)
        live_put_steps(l);
    for (int i = 0; i < gw_epochs.columns && n < MOST; i++) {
        const char *column = gw_epochs.column[i].name;
        if (strcmp(column, "epoch") == 0 || strcmp(column, "step") == 0)
            continue;
        snprintf(name[n], sizeof *name, "epoch/%s", column);
        v[n] = (live_value){name[n], gw_table_number(&gw_epochs, row, column)};
        n++;
    }
    l->step = row->step;
    live_put(l, "epoch", v, n);
    return live_flush(l);
}

static void live_put_end(gw_live *l, const char *status) {
    if (l->n > 0)
        live_put_steps(l);
    fprintf(l->out, "{\"event\":\"end\",\"time\":%.3f,\"step\":%lld,\"status\":\"%s\"}\n",
            live_now(), (long long)l->step, status);
    l->ended = true;
}

gw_err gw_live_end(gw_live *l) {
    if (!l)
        return GW_OK;
    live_put_end(l, "complete");
    return live_flush(l);
}

void gw_live_close(gw_live *l) {
    struct stat of;
    if (!l)
        return;
    if (l->begun && !l->ended)
        live_put_end(l, "failed");
    else if (!l->begun && fstat(fileno(l->out), &of) == 0 && of.st_size == 0)
        unlink(l->path); /* nothing ran */
    fclose(l->out);
    free(l);
}
