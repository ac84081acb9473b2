/** The mesh: the ranks as data x pipe x tensor. Neurons of a layer are spread over tensor ranks,
 *  layers over pipe ranks; ranks that differ in the data coordinate alone hold equal parameters (a
 *  replica group) and exchange gradients. Three-dimensional meshes of this kind: Narayanan et al.,
 *  "Efficient large-scale language model training on GPU clusters using Megatron-LM", SC 2021. */
#ifndef GW_MPI_MESH_H
#define GW_MPI_MESH_H

#include "base/spec.h"

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>

typedef enum gw_dim { GW_DIM_DATA, GW_DIM_PIPE, GW_DIM_TENSOR, GW_DIMS } gw_dim;

/** Sizes as asked for, before the number of ranks is known. */
typedef struct gw_mesh_shape {
    int size[GW_DIMS];     /* data: 0 where it takes what is left */
    gw_dim order[GW_DIMS]; /* the outermost first: ranks next to each other differ in the last */
} gw_mesh_shape;

typedef struct gw_mesh {
    gw_mesh_shape shape;    /* data known */
    int at[GW_DIMS];        /* this rank's coordinates */
    MPI_Comm comm[GW_DIMS]; /* ranks that differ in this coordinate alone, in its order; private,
                               MPI_ERRORS_RETURN; MPI_COMM_NULL: not opened */
} gw_mesh;

/** `spec`, a list such as data=2,pipe=2,tensor=2; NULL or "": all ranks are data. What is left out
 *  is 1, data what is left. The written order is the nesting; data, if left out, stands behind
 *  pipe, or first. GW_ERR_USAGE: an unknown name (with the nearest), a size that is no number from
 *  1 on, a name twice. No communication. */
gw_err gw_mesh_parse(gw_mesh_shape *out, const gw_spec *spec);

/** Do layers or neurons lie on several ranks? */
static inline bool gw_mesh_divides(const gw_mesh_shape *s) {
    return s->size[GW_DIM_PIPE] > 1 || s->size[GW_DIM_TENSOR] > 1;
}

/** Where `rank` of `ranks` is, without communicators. GW_ERR_USAGE: so many are no such mesh. */
gw_err gw_mesh_place(gw_mesh *out, const gw_mesh_shape *shape, int rank, int ranks);

/** Collective over `comm`: the communicators, and where this rank is. GW_ERR_USAGE on all ranks: so
 *  many ranks are no such mesh. gw_mesh_close is collective, too; also after an error. */
gw_err gw_mesh_open(gw_mesh *out, const gw_mesh_shape *shape, MPI_Comm comm);
void gw_mesh_close(gw_mesh *m);

/** As --mesh takes it, without what is 1: "data=2,pipe=2"; "": all are. 48 bytes suffice. */
void gw_mesh_text(const gw_mesh_shape *s, char *out, size_t cap);

/** The replica group: the same number on all ranks that differ in the data coordinate alone. */
int gw_mesh_group(const gw_mesh *m);

/** The rank, in the mesh's own communicator, at these coordinates, by gw_dim. */
int gw_mesh_rank(const gw_mesh *m, const int at[GW_DIMS]);

#endif
