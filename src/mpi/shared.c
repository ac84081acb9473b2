#include "mpi/shared.h"

#include "base/mem.h"
#include "mpi/wait.h"
#include "mpi/world.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINE = 64, LEAST_WINDOW = 1 << 16 };

/* One window: every rank's segment is `size` bytes, of which `used` are given out. */
typedef struct window {
    char *map; /* all segments, one after the other, in the order of the ranks */
    size_t size, used;
} window;

struct gw_shared {
    MPI_Comm node;
    int rank, size;
    int *world; /* the node's ranks by their numbers in MPI_COMM_WORLD */
    window *windows;
    int count, room;
};

/* The split spins, milliseconds a rank where ranks share cores, and every lane asks the same of the
 * same communicator: so its answer stays with that as an attribute. */
static int keyval = MPI_KEYVAL_INVALID;

static int shared_forget(MPI_Comm comm, int key, void *value, void *extra) {
    (void)comm, (void)key, (void)extra;
    int rc = MPI_Comm_free(value);
    free(value);
    return rc;
}

static gw_err shared_find_node(MPI_Comm comm, MPI_Comm *out) {
    MPI_Comm *node = NULL;
    int found = 0;
    if (keyval == MPI_KEYVAL_INVALID)
        GW_MPI(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, shared_forget, &keyval, NULL));
    GW_MPI(MPI_Comm_get_attr(comm, keyval, (void *)&node, &found));
    if (!found) {
        GW_TRY(gw_agree(comm, gw_alloc(&node, 1, sizeof *node)));
        GW_MPI(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, node));
        GW_MPI(MPI_Comm_set_attr(comm, keyval, node));
    }
    return gw_comm_dup(*node, out);
}

gw_err gw_shared_open(gw_shared **out, MPI_Comm comm) {
    gw_shared *m = NULL;
    GW_TRY(gw_agree(comm, gw_alloc(&m, 1, sizeof *m)));
    GW_TRY(shared_find_node(comm, &m->node));
    GW_MPI(MPI_Comm_set_errhandler(m->node, MPI_ERRORS_RETURN));
    GW_TRY(gw_comm_place(m->node, &m->rank, NULL));
    GW_TRY(gw_comm_place(m->node, NULL, &m->size));
    GW_TRY(gw_world_ranks(m->node, &m->world));
    *out = m;
    return GW_OK;
}

void gw_shared_close(gw_shared *m) {
    if (!m)
        return;
    for (int i = 0; i < m->count; i++)
        munmap(m->windows[i].map, m->windows[i].size * (size_t)m->size);
    free(m->windows);
    free(m->world);
    MPI_Comm_free(&m->node);
    free(m);
}

int gw_shared_rank(const gw_shared *m) {
    return m->rank;
}

int gw_shared_size(const gw_shared *m) {
    return m->size;
}

int gw_shared_world(const gw_shared *m, int r) {
    return m->world[r];
}

MPI_Comm gw_shared_comm(const gw_shared *m) {
    return m->node;
}

static char *shared_segment(const window *w, int r) {
    return w->map + (size_t)r * w->size;
}

/* ---- files without a name ---- */

gw_err gw_shared_file_of(int fd, gw_shared_file *out) {
    struct stat st;
    if (fstat(fd, &st) != 0)
        return gw_fail(GW_ERR_UNSUPPORTED, "shared memory: its file: %s", strerror(errno));
    *out = (gw_shared_file){(uint64_t)getpid(), (uint64_t)fd, st.st_dev, st.st_ino};
    return GW_OK;
}

/* A mistake here would be a sum of something else: another namespace of processes has another file
 * by this name, or none. */
gw_err gw_shared_file_open(const gw_shared_file *of, int *fd) {
    char name[64];
    struct stat st;
    snprintf(name, sizeof name, "/proc/%" PRIu64 "/fd/%" PRIu64, of->pid, of->fd);
    *fd = open(name, O_RDWR | O_CLOEXEC);
    int why = errno;
    if (*fd >= 0 && fstat(*fd, &st) == 0 && st.st_dev == of->device && st.st_ino == of->inode)
        return GW_OK;
    if (*fd >= 0)
        close(*fd);
    return gw_fail(GW_ERR_UNSUPPORTED,
                   "shared memory: %s of another rank cannot be opened: %s: start the ranks of a "
                   "node in one namespace of processes, by one user",
                   name, *fd >= 0 ? "it is another file" : strerror(why));
}

/* Each rank has its own pages allocated: near the rank, and an error now instead of a SIGBUS later.
 */
static gw_err shared_map_object(const gw_shared *m, window *w, const gw_shared_file *of, int *fd) {
    size_t all = w->size * (size_t)m->size;
    if (*fd < 0)
        GW_TRY(gw_shared_file_open(of, fd));
    int rc = posix_fallocate(*fd, (off_t)w->size * m->rank, (off_t)w->size);
    if (rc != 0)
        return gw_fail(GW_ERR_NOMEM, "cannot share %zu bytes a rank on this node: %s", w->size,
                       strerror(rc));
    void *map = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    if (map == MAP_FAILED)
        return gw_fail(GW_ERR_NOMEM, "cannot map %zu bytes of shared memory: %s", all,
                       strerror(errno));
    w->map = map;
    return GW_OK;
}

/* Rank 0 makes the file; without a process the others learn that it made none, and its error is the
 * one that all learn. */
static gw_err shared_add_window(gw_shared *m, size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    window w = {.size = (bytes < LEAST_WINDOW ? LEAST_WINDOW : bytes + page - 1) / page * page};
    gw_shared_file file = {0};
    int fd = -1;
    gw_err e = gw_grow(&m->windows, &m->room, m->count + 1, sizeof *m->windows);
    if (m->rank == 0 && e == GW_OK) {
        fd = memfd_create("gradwire", MFD_CLOEXEC);
        e = fd >= 0 ? gw_shared_file_of(fd, &file)
                    : gw_fail(GW_ERR_NOMEM, "cannot make shared memory: %s", strerror(errno));
    }
    GW_TRY(gw_bcast(&file, sizeof file, MPI_BYTE, 0, m->node));
    if (e == GW_OK && file.pid > 0)
        e = shared_map_object(m, &w, &file, &fd);
    e = gw_agree(m->node, e); /* until all have it open */
    if (fd >= 0)
        close(fd);
    if (e == GW_OK)
        m->windows[m->count++] = w;
    else if (w.map)
        munmap(w.map, w.size * (size_t)m->size);
    return e;
}

gw_err gw_shared_alloc(gw_shared *m, size_t bytes, void **mine) {
    bytes = bytes == 0 ? LINE : (bytes + LINE - 1) / LINE * LINE;
    window *last = m->count ? &m->windows[m->count - 1] : NULL;
    if (!last || last->size - last->used < bytes) {
        GW_TRY(shared_add_window(m, bytes));
        last = &m->windows[m->count - 1];
    }
    *mine = shared_segment(last, m->rank) + last->used;
    last->used += bytes;
    return GW_OK;
}

void *gw_shared_twin(const gw_shared *m, const void *mine, int r) {
    for (int i = 0; i < m->count; i++) {
        const window *w = &m->windows[i];
        uintptr_t from = (uintptr_t)shared_segment(w, m->rank), at = (uintptr_t)mine;
        if (at >= from && at - from < w->size)
            return shared_segment(w, r) + (at - from);
    }
    return NULL;
}
