#include "comm/shared.h"

#include "base/mem.h"
#include "base/wait.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 64, LEAST_WINDOW = 1 << 20 };

/* One window: every rank's segment is `size` bytes, of which `used` are given out. */
typedef struct window {
    MPI_Win win;    /* MPI_WIN_NULL on a node of one rank: plain memory then */
    char **segment; /* of each rank of the node, as mapped here */
    char *plain;
    size_t size, used;
} window;

struct gw_shared {
    MPI_Comm node;
    int rank, size;
    window *windows;
    int count;
};

gw_err gw_shared_open(gw_shared **out, MPI_Comm comm) {
    gw_shared *m = NULL;
    GW_TRY(gw_agree(comm, gw_alloc(&m, 1, sizeof *m)));
    GW_MPI(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &m->node));
    GW_MPI(MPI_Comm_set_errhandler(m->node, MPI_ERRORS_RETURN));
    GW_MPI(MPI_Comm_rank(m->node, &m->rank));
    GW_MPI(MPI_Comm_size(m->node, &m->size));
    *out = m;
    return GW_OK;
}

void gw_shared_close(gw_shared *m) {
    if (!m)
        return;
    for (int i = 0; i < m->count; i++) {
        if (m->windows[i].win != MPI_WIN_NULL)
            MPI_Win_free(&m->windows[i].win);
        free(m->windows[i].segment);
        free(m->windows[i].plain);
    }
    free(m->windows);
    MPI_Comm_free(&m->node);
    free(m);
}

int gw_shared_rank(const gw_shared *m) {
    return m->rank;
}

int gw_shared_size(const gw_shared *m) {
    return m->size;
}

MPI_Comm gw_shared_comm(const gw_shared *m) {
    return m->node;
}

static char *align(void *p) {
    return (char *)(((uintptr_t)p + LINE - 1) / LINE * LINE);
}

static gw_err map_window(gw_shared *m, window *w) {
    void *base = NULL;
    MPI_Info info;
    GW_MPI(MPI_Info_create(&info));
    /* Each rank's part in pages of its own, near the rank. */
    GW_MPI(MPI_Info_set(info, "alloc_shared_noncontig", "true"));
    int rc = MPI_Win_allocate_shared((MPI_Aint)(w->size + LINE), 1, info, m->node, &base, &w->win);
    GW_MPI(MPI_Info_free(&info));
    if (rc != MPI_SUCCESS) {
        w->win = MPI_WIN_NULL;
        return gw_fail(GW_ERR_NOMEM,
                       "cannot share %zu bytes a rank on this node: is /dev/shm large enough?",
                       w->size);
    }
    for (int r = 0; r < m->size; r++) {
        MPI_Aint bytes;
        int unit;
        GW_MPI(MPI_Win_shared_query(w->win, r, &bytes, &unit, &base));
        w->segment[r] = align(base);
    }
    return GW_OK;
}

static gw_err add_window(gw_shared *m, size_t bytes) {
    window w = {.win = MPI_WIN_NULL, .size = bytes < LEAST_WINDOW ? LEAST_WINDOW : bytes};
    window *wide = realloc(m->windows, ((size_t)m->count + 1) * sizeof *wide);
    gw_err e = wide ? GW_OK : gw_fail(GW_ERR_NOMEM, "shared memory: out of memory");
    if (wide)
        m->windows = wide;
    if (e == GW_OK)
        e = gw_alloc(&w.segment, (size_t)m->size, sizeof *w.segment);
    if (e == GW_OK && m->size == 1) {
        e = gw_alloc(&w.plain, w.size, 1);
        w.segment[0] = w.plain;
    }
    e = gw_agree(m->node, e);
    if (e == GW_OK && m->size > 1) {
        e = gw_agree(m->node, map_window(m, &w));
        if (e == GW_OK)
            memset(w.segment[m->rank], 0, w.size); /* first touch: by its owner */
        GW_TRY(gw_barrier(m->node));
    }
    if (e != GW_OK) {
        free(w.segment);
        free(w.plain);
        return e;
    }
    m->windows[m->count++] = w;
    return GW_OK;
}

gw_err gw_shared_alloc(gw_shared *m, size_t bytes, void **mine) {
    bytes = bytes == 0 ? LINE : (bytes + LINE - 1) / LINE * LINE;
    window *last = m->count ? &m->windows[m->count - 1] : NULL;
    if (!last || last->size - last->used < bytes) {
        GW_TRY(add_window(m, bytes));
        last = &m->windows[m->count - 1];
    }
    *mine = last->segment[m->rank] + last->used;
    last->used += bytes;
    return GW_OK;
}

void *gw_shared_twin(const gw_shared *m, const void *mine, int r) {
    for (int i = 0; i < m->count; i++) {
        uintptr_t from = (uintptr_t)m->windows[i].segment[m->rank], at = (uintptr_t)mine;
        if (at >= from && at - from < m->windows[i].size)
            return m->windows[i].segment[r] + (at - from);
    }
    return NULL;
}
