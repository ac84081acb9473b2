#include "mpi/mesh.h"

#include "base/args.h"
#include "base/probe.h"
#include "mpi/team.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

gw_err gw_mesh_parse(gw_mesh_shape *out, const gw_spec *spec) {
    gw_dim written[GW_DIMS];
    int n = 0;
    *out = (gw_mesh_shape){0};
    for (const gw_spec *i = spec ? spec->parts : NULL; i; i = i->next) {
        int d = 0;
        char *end;
        if (!i->key)
            return gw_fail(GW_ERR_USAGE, "--mesh %s: write it as in data=2,pipe=2,tensor=2",
                           i->text);
        while (d < GW_DIMS && strcmp(gw_dim_names[d], i->key) != 0)
            d++;
        if (d == GW_DIMS)
            return gw_unknown("--mesh", "dimension", i->key, gw_dim_names, GW_DIMS,
                              "data, pipe, tensor");
        if (out->size[d] > 0)
            return gw_fail(GW_ERR_USAGE, "--mesh %s: %s is given twice", spec->text,
                           gw_dim_names[d]);
        const char *text = i->parts ? i->parts->text : "";
        long size = strtol(text, &end, 10);
        if (end == text || *end || size < 1 || size > 1 << 20)
            return gw_fail(GW_ERR_USAGE, "--mesh %s: '%s' is not a number of ranks: give 1 or more",
                           i->text, text);
        out->size[d] = (int)size;
        written[n++] = (gw_dim)d;
    }
    /* The written order, and what was not written where it belongs. */
    int k = 0;
    bool placed = out->size[GW_DIM_DATA] > 0;
    for (int d = 0; d < GW_DIMS; d++) /* of size 1: anywhere */
        if (out->size[d] == 0 && d != GW_DIM_DATA) {
            out->size[d] = 1;
            out->order[k++] = (gw_dim)d;
        }
    bool first = !placed && out->size[GW_DIM_PIPE] == 1;
    if (first)
        out->order[k++] = GW_DIM_DATA;
    for (int i = 0; i < n; i++) {
        out->order[k++] = written[i];
        if (!placed && !first && written[i] == GW_DIM_PIPE)
            out->order[k++] = GW_DIM_DATA;
    }
    return GW_OK;
}

void gw_mesh_text(const gw_mesh_shape *s, char *out, size_t cap) {
    out[0] = '\0';
    for (int i = 0; i < GW_DIMS; i++) {
        size_t have = strlen(out);
        int size = s->size[s->order[i]];
        if (size > 1)
            snprintf(out + have, cap - have, "%s%s=%d", have ? "," : "", gw_dim_names[s->order[i]],
                     size);
    }
}

int gw_mesh_rank(const gw_mesh *m, const int at[GW_DIMS]) {
    int rank = 0;
    for (int i = 0; i < GW_DIMS; i++)
        rank = rank * m->shape.size[m->shape.order[i]] + at[m->shape.order[i]];
    return rank;
}

int gw_mesh_group(const gw_mesh *m) {
    return m->at[GW_DIM_PIPE] * m->shape.size[GW_DIM_TENSOR] + m->at[GW_DIM_TENSOR];
}

gw_err gw_mesh_place(gw_mesh *out, const gw_mesh_shape *shape, int rank, int ranks) {
    gw_mesh_shape *s = &out->shape;
    char text[96];
    *out = (gw_mesh){.shape = *shape, .comm = {MPI_COMM_NULL, MPI_COMM_NULL, MPI_COMM_NULL}};
    long long model = (long long)s->size[GW_DIM_PIPE] * s->size[GW_DIM_TENSOR];
    gw_mesh_text(s, text, sizeof text);
    if (s->size[GW_DIM_DATA] == 0 && ranks % model == 0)
        s->size[GW_DIM_DATA] = (int)(ranks / model);
    else if (s->size[GW_DIM_DATA] == 0)
        return gw_fail(GW_ERR_USAGE, "--mesh %s takes a multiple of %lld ranks, and there %s %d",
                       text, model, ranks == 1 ? "is" : "are", ranks);
    long long takes = model * s->size[GW_DIM_DATA];
    if (takes != ranks)
        return gw_fail(GW_ERR_USAGE, "--mesh %s takes %lld rank%s, and there %s %d",
                       *text ? text : "data=1", takes, takes == 1 ? "" : "s",
                       ranks == 1 ? "is" : "are", ranks);
    for (int i = GW_DIMS - 1; i >= 0; i--) {
        gw_dim d = s->order[i];
        out->at[d] = rank % s->size[d];
        rank /= s->size[d];
    }
    return GW_OK;
}

gw_err gw_mesh_open(gw_mesh *out, const gw_mesh_shape *shape, MPI_Comm comm) {
    int rank, ranks;
    GW_TRY(gw_comm_place(comm, &rank, &ranks));
    GW_TRY(gw_mesh_place(out, shape, rank, ranks));
    for (int d = 0; d < GW_DIMS; d++) {
        int line[GW_DIMS];
        memcpy(line, out->at, sizeof line);
        line[d] = 0; /* all of a line have its first rank in common; they keep their order */
        GW_TRY(gw_comm_split(comm, gw_mesh_rank(out, line), &out->comm[d]));
    }
    return GW_OK;
}

void gw_mesh_close(gw_mesh *m) {
    for (int d = 0; d < GW_DIMS; d++)
        gw_comm_free(&m->comm[d]);
}
