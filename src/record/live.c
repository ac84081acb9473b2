#include "record/live.h"

#include "base/file.h"
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

enum { PARTS = 4, MOST = 16 /* metrics of a line */, EVENT = 1536 };

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
    bool events;              /* an event file; else JSON lines */
    bool begun, ended, uncut; /* uncut: what an earlier run left could not go */
    double flushed_s;
    gw_batch_table table;
    int every, n, epoch; /* n: steps since the last line, whose sums these are: */
    int64_t step;
    double loss, samples, sum[OF_STEP];
};

static const char json[] = "json:", tensorboard[] = "tensorboard:";

static bool live_is(const char *where, const char *form) {
    size_t len = strlen(form);
    return strncmp(where, form, len) == 0 && where[len];
}

gw_err gw_live_check(const char *where, const char *owner) {
    if (!where || live_is(where, json) || live_is(where, tensorboard))
        return GW_OK;
    return gw_fail(GW_ERR_USAGE, "%s: --log %s: must be json:FILE or tensorboard:DIR", owner,
                   where);
}

static double live_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* TensorBoard looks for this name in all folders below the one that it is given. */
static gw_err live_name_events(gw_live *l, const char *dir) {
    char host[64] = "";
    bool made;
    gethostname(host, sizeof host - 1);
    GW_TRY(gw_file_make_folder(dir, &made));
    int len = snprintf(l->path, sizeof l->path, "%s/events.out.tfevents.%.0f.%s.%d", dir,
                       live_now(), host, (int)getpid());
    return len < (int)sizeof l->path ? GW_OK : gw_fail(GW_ERR_INPUT, "the path is too long");
}

static gw_err live_open(gw_live *l, const char *where) {
    struct stat of;
    if (l->events)
        GW_TRY(live_name_events(l, where + strlen(tensorboard)));
    else if (snprintf(l->path, sizeof l->path, "%s", where + strlen(json)) >= (int)sizeof l->path)
        return gw_fail(GW_ERR_INPUT, "the path is too long");
    /* O_NONBLOCK: a pipe that nobody reads would never open. */
    int fd = open(l->path, O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_CLOEXEC, 0666);
    if (fd < 0 && errno != ENXIO)
        return gw_fail(GW_ERR_INPUT, "%s: %s", l->path, strerror(errno));
    l->out = fd >= 0 && fstat(fd, &of) == 0 && S_ISREG(of.st_mode) ? fdopen(fd, "a") : NULL;
    if (!l->out) {
        if (fd >= 0)
            close(fd);
        return gw_fail(GW_ERR_INPUT, "%s: no regular file: name one, and follow it by tail -F",
                       l->path);
    }
    return GW_OK;
}

gw_err gw_live_open(gw_live **out, const char *where, int every) {
    gw_live *l;
    GW_TRY(gw_alloc(&l, 1, sizeof *l));
    *l = (gw_live){.events = live_is(where, tensorboard), .every = every};
    gw_batch_table_make(&l->table, false, NULL, 0);
    gw_err e = live_open(l, where);
    if (e != GW_OK) {
        char why[4400];
        snprintf(why, sizeof why, "%s", gw_err_text());
        free(l);
        return gw_fail(e, "--log %s: %s", where, why);
    }
    *out = l;
    return GW_OK;
}

/* ---- an event file: records of protocol buffers, as TensorBoard defines them ---- */

typedef struct live_bytes {
    unsigned char at[EVENT];
    size_t n;
} live_bytes;

static void put(live_bytes *b, const void *from, size_t n) {
    if (b->n + n <= EVENT) {
        memcpy(b->at + b->n, from, n);
        b->n += n;
    }
}

static void put_fixed(live_bytes *b, uint64_t bits, int n) {
    for (int i = 0; i < n; i++)
        put(b, &(unsigned char){(unsigned char)(bits >> 8 * i)}, 1);
}

static void put_varint(live_bytes *b, uint64_t x) {
    for (; x >= 128; x >>= 7)
        put_fixed(b, (x & 127) | 128, 1);
    put_fixed(b, x, 1);
}

/* A field of bytes: its number, its length, itself. */
static void put_field(live_bytes *b, int field, const void *from, size_t n) {
    put_varint(b, (uint64_t)field << 3 | 2);
    put_varint(b, n);
    put(b, from, n);
}

/* CRC-32C (Castagnoli), masked: the checksum of each part of a record. */
static uint32_t live_checksum(const void *from, size_t n) {
    uint32_t crc = ~0u;
    for (const unsigned char *at = from; n > 0; n--, at++) {
        crc ^= *at;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (0x82f63b78u & -(crc & 1));
    }
    crc = ~crc;
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* An Event: wall_time = 1, step = 2, and `more`, its other field. */
static void live_put_event(gw_live *l, int64_t step, const live_bytes *more) {
    live_bytes head = {.n = 0}, event = {.n = 0};
    double now = live_now();
    uint64_t bits;
    memcpy(&bits, &now, sizeof bits);
    put_varint(&event, 1 << 3 | 1);
    put_fixed(&event, bits, 8);
    put_varint(&event, 2 << 3);
    put_varint(&event, (uint64_t)step);
    put(&event, more->at, more->n);
    put_fixed(&head, event.n, 8);
    put_fixed(&head, live_checksum(head.at, 8), 4);
    fwrite(head.at, 1, head.n, l->out);
    put_fixed(&event, live_checksum(event.at, event.n), 4);
    fwrite(event.at, 1, event.n, l->out);
}

/* summary = 5, of values = 1: tag = 1, simple_value = 2. */
static void live_put_summary(gw_live *l, int64_t step, const live_value *v, int n) {
    live_bytes summary = {.n = 0}, more = {.n = 0};
    for (int i = 0; i < n; i++) {
        live_bytes value = {.n = 0};
        float x = (float)v[i].x;
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        put_field(&value, 1, v[i].name, strlen(v[i].name));
        put_varint(&value, 2 << 3 | 5);
        put_fixed(&value, bits, 4);
        put_field(&summary, 1, value.at, value.n);
    }
    put_field(&more, 5, summary.at, summary.n);
    live_put_event(l, step, &more);
}

/* file_version = 3. session_log = 7, whose status = 1 of a start: what an earlier file has of later
 * steps is void. */
static void live_begin_events(gw_live *l, int64_t step, bool resumes) {
    static const char version[] = "brain.Event:2";
    static const unsigned char start[] = {1 << 3, 1};
    live_bytes more = {.n = 0};
    put_field(&more, 3, version, strlen(version));
    live_put_event(l, 0, &more);
    more.n = 0;
    put_field(&more, 7, start, sizeof start);
    if (resumes)
        live_put_event(l, step + 1, &more);
}

/* ---- lines ---- */

static void live_put_line(gw_live *l, const char *event, const live_value *v, int n) {
    fprintf(l->out, "{\"event\":\"%s\",\"time\":%.3f,\"epoch\":%d,\"step\":%lld,\"metrics\":{",
            event, live_now(), l->epoch, (long long)l->step);
    for (int i = 0; i < n; i++)
        fprintf(l->out, "%s\"%s\":%.15g", i ? "," : "", v[i].name, v[i].x);
    fputs("}}\n", l->out);
}

static void live_put(gw_live *l, const char *event, const live_value *all, int n) {
    live_value known[MOST];
    int k = 0;
    for (int i = 0; i < n; i++)
        if (isfinite(all[i].x))
            known[k++] = all[i];
    if (l->events)
        live_put_summary(l, l->step, known, k);
    else
        live_put_line(l, event, known, k);
    if (live_now() - l->flushed_s >= 1) {
        fflush(l->out);
        l->flushed_s = live_now();
    }
}

void gw_live_begin(gw_live *l, json_t *options, int ranks, int64_t step, bool resumes) {
    if (l && l->events) {
        live_begin_events(l, step, resumes);
    } else if (l) {
        l->uncut = !resumes && ftruncate(fileno(l->out), 0) != 0;
        fprintf(l->out,
                "{\"event\":\"begin\",\"time\":%.3f,\"schema\":1,\"version\":\"%s\",\"ranks\":%d,"
                "\"step\":%lld,\"resumes\":%s,\"options\":",
                live_now(), GW_VERSION, ranks, (long long)step, resumes ? "true" : "false");
        json_dumpf(options, l->out, JSON_COMPACT);
        fputs("}\n", l->out);
    }
    if (l) {
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
    if (!l->events)
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
