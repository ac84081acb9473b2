#include "comm/lent.h"

#include "base/mem.h"
#include "mpi/wait.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Where one rank has one tensor. In memory that all ranks read. */
typedef struct entry {
    int region; /* -1: the arena */
    float weight;
    size_t off;            /* bytes in the region */
    _Atomic uint32_t most; /* of the parts that were summed so far */
} entry;

/* What all ranks lent with one gw_lent_add: where it lies here. */
typedef struct region {
    char **at; /* of each rank */
    size_t *bytes;
} region;

struct gw_lent {
    gw_shared *memory;
    int me, ranks;
    float **arena;
    entry **table; /* of each rank, an entry a tensor */
    const gw_tensor *tensors;
    int n_tensors;
    region *regions;
    int count, room;
};

static void lent_free_region(gw_lent *l, region *g) {
    for (int r = 0; g->at && r < l->ranks; r++)
        if (g->at[r] && r != l->me)
            munmap(g->at[r], g->bytes[r]);
    free(g->at);
    free(g->bytes);
}

void gw_lent_close(gw_lent *l) {
    if (!l)
        return;
    for (int i = 0; i < l->count; i++)
        lent_free_region(l, &l->regions[i]);
    free(l->regions);
    free(l->arena);
    free(l->table);
    free(l);
}

gw_err gw_lent_open(gw_lent **out, gw_shared *memory, float *arena, const gw_tensor *tensors,
                    int n_tensors) {
    gw_lent *l = NULL;
    void *mine = NULL;
    int ranks = gw_shared_size(memory);
    gw_err e = gw_alloc(&l, 1, sizeof *l);
    GW_THEN(e, gw_alloc(&l->arena, (size_t)ranks, sizeof *l->arena));
    GW_THEN(e, gw_alloc(&l->table, (size_t)ranks, sizeof *l->table));
    e = gw_agree(gw_shared_comm(memory), e);
    GW_THEN(e, gw_shared_alloc(memory, (size_t)n_tensors * sizeof(entry), &mine));
    if (e != GW_OK) {
        gw_lent_close(l);
        return e;
    }
    l->memory = memory;
    l->me = gw_shared_rank(memory);
    l->ranks = ranks;
    l->tensors = tensors;
    l->n_tensors = n_tensors;
    for (int r = 0; r < ranks; r++) {
        l->arena[r] = gw_shared_twin(memory, arena, r);
        l->table[r] = gw_shared_twin(memory, mine, r);
    }
    for (int t = 0; t < n_tensors; t++)
        gw_lent_put(l, t, NULL, 1);
    *out = l;
    return GW_OK;
}

const float *gw_lent_arena(const gw_lent *l) {
    return l->arena[l->me];
}

/* ---- lending ---- */

/* How the other ranks find a file that one of them has open. */
typedef struct offer {
    gw_shared_file file;
    uint64_t bytes;
} offer;

/* A mistake here would be a sum of something else, so the kernel is asked. */
static gw_err lent_check_mapping(const void *memory, size_t bytes, uint64_t file) {
    FILE *maps = fopen("/proc/self/maps", "r");
    uintptr_t at = (uintptr_t)memory, from, to;
    uintmax_t off, inode;
    char line[512], mode[8];
    bool found = false;
    while (maps && !found && fgets(line, sizeof line, maps))
        found = sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %7s %" SCNxMAX " %*s %" SCNuMAX, &from, &to,
                       mode, &off, &inode) == 5 &&
                from <= at && at < to && to - at >= bytes && off + (at - from) == 0 &&
                inode == file && strcmp(mode, "rw-s") == 0;
    if (maps)
        fclose(maps);
    return found ? GW_OK
                 : gw_fail(GW_ERR_UNSUPPORTED,
                           "lent memory: it is no shared mapping of its file from the beginning");
}

static gw_err lent_map_all(gw_lent *l, region *g, const offer *offers, void *mine) {
    for (int r = 0; r < l->ranks; r++) {
        size_t bytes = g->bytes[r] = offers[r].bytes;
        struct stat file;
        int fd;
        if (r == l->me) {
            g->at[r] = mine;
            continue;
        }
        GW_TRY(gw_shared_file_open(&offers[r].file, &fd));
        void *map =
            fstat(fd, &file) == 0 && (uint64_t)file.st_size >= bytes
                ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0)
                : MAP_FAILED;
        int why = errno;
        close(fd);
        if (map == MAP_FAILED)
            return gw_fail(GW_ERR_UNSUPPORTED, "lent memory of another rank cannot be mapped: %s",
                           strerror(why));
        g->at[r] = map;
    }
    return GW_OK;
}

gw_err gw_lent_add(gw_lent *l, void *memory, size_t bytes, int fd) {
    enum { WORDS = sizeof(offer) / sizeof(uint64_t) };
    MPI_Comm comm = gw_shared_comm(l->memory);
    size_t ranks = (size_t)l->ranks;
    region g = {0};
    offer *offers = NULL;
    gw_err e = gw_grow(&l->regions, &l->room, l->count + 1, sizeof *l->regions);
    GW_THEN(e, gw_alloc(&g.at, ranks, sizeof *g.at));
    GW_THEN(e, gw_alloc(&g.bytes, ranks, sizeof *g.bytes));
    GW_THEN(e, gw_alloc(&offers, ranks, sizeof *offers));
    if (e == GW_OK && (fd < 0 || !memory || bytes == 0))
        e = gw_fail(GW_ERR_UNSUPPORTED, "lent memory: a rank had none to lend");
    GW_THEN(e, gw_shared_file_of(fd, &offers[l->me].file));
    GW_THEN(e, lent_check_mapping(memory, bytes, offers[l->me].file.inode));
    if (e == GW_OK)
        offers[l->me].bytes = bytes;
    e = gw_agree(comm, e);
    /* Every rank's offer to every rank: each fills in its own, and they are added. */
    GW_THEN(e, gw_allreduce(MPI_IN_PLACE, offers, l->ranks * WORDS, MPI_UINT64_T, MPI_SUM, comm));
    if (e == GW_OK)
        e = gw_agree(comm, lent_map_all(l, &g, offers, memory));
    free(offers);
    if (e == GW_OK)
        l->regions[l->count++] = g;
    else
        lent_free_region(l, &g);
    return e;
}

/* ---- an exchange ---- */

bool gw_lent_put(gw_lent *l, int t, float *grad, float weight) {
    entry *mine = &l->table[l->me][t];
    uintptr_t at = (uintptr_t)grad;
    mine->region = -1;
    mine->weight = 1;
    mine->most = 0;
    for (int i = 0; grad && i < l->count; i++) { /* the region that all of the tensor lies in */
        uintptr_t from = (uintptr_t)l->regions[i].at[l->me];
        size_t bytes = l->regions[i].bytes[l->me];
        if (at < from || at - from >= bytes ||
            bytes - (at - from) < l->tensors[t].span.n * sizeof *grad)
            continue;
        mine->off = at - from;
        mine->region = i;
        mine->weight = weight;
        return true;
    }
    return false;
}

/* The tensor that the arena's float `at` belongs to. */
static int lent_tensor(const gw_lent *l, size_t at) {
    int lo = 0, hi = l->n_tensors - 1;
    while (lo < hi) {
        int mid = (lo + hi + 1) / 2;
        if (l->tensors[mid].span.off <= at)
            lo = mid;
        else
            hi = mid - 1;
    }
    return lo;
}

size_t gw_lent_rows(const gw_lent *l, gw_span s, float **rows, float *weights) {
    int t = lent_tensor(l, s.off);
    gw_span of = l->tensors[t].span;
    for (int r = 0; r < l->ranks; r++) {
        const entry *e = &l->table[r][t];
        float *tensor =
            e->region < 0 ? l->arena[r] + of.off : (float *)(l->regions[e->region].at[r] + e->off);
        rows[r] = tensor + (s.off - of.off);
        weights[r] = e->weight;
    }
    return gw_span_common(of, s).n;
}

void gw_lent_saw(gw_lent *l, size_t at, const uint32_t *most) {
    int t = lent_tensor(l, at);
    for (int r = 0; r < l->ranks; r++) {
        uint32_t before = l->table[r][t].most;
        while (most[r] > before &&
               !atomic_compare_exchange_weak(&l->table[r][t].most, &before, most[r]))
            ;
    }
}

uint32_t gw_lent_most(const gw_lent *l, int t) {
    return l->table[l->me][t].most;
}
