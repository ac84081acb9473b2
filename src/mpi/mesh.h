/** The mesh: the ranks as data x pipe x tensor. Neurons of a layer are spread over tensor ranks,
 *  layers over pipe ranks; ranks that differ only in the data coordinate hold equal parameters (a
 *  replica group) and exchange gradients. Three-dimensional meshes of this kind: Narayanan et al.,
 *  "Efficient large-scale language model training on GPU clusters using Megatron-LM", SC 2021. */
#ifndef GW_MPI_MESH_H
#define GW_MPI_MESH_H

#include "base/spec.h"

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>

typedef enum gw_dim { GW_DIM_DATA, GW_DIM_PIPE, GW_DIM_TENSOR, GW_DIMS } gw_dim;

/** Requested sizes, before the number of ranks is known. */
typedef struct gw_mesh_shape {
    int size[GW_DIMS];     /* data: 0 if it takes the remaining ranks */
    gw_dim order[GW_DIMS]; /* outermost first: neighbouring ranks differ in the last */
} gw_mesh_shape;

typedef struct gw_mesh {
    gw_mesh_shape shape;    /* data known */
    int at[GW_DIMS];        /* this rank's coordinates */
    MPI_Comm comm[GW_DIMS]; /* ranks that differ only in this coordinate, in its order; private,
                               MPI_ERRORS_RETURN; MPI_COMM_NULL: not opened */
} gw_mesh;

/** Parse `spec`, a list such as data=2,pipe=2,tensor=2; NULL or "": all ranks are data. Omitted
 *  dimensions are 1, but data takes the remaining ranks. The written order is the nesting; omitted
 *  data comes after pipe, or first. GW_ERR_USAGE: an unknown name (with the nearest), a size that
 *  is no number from 1 on, a name twice. No communication. */
gw_err gw_mesh_parse(gw_mesh_shape *out, const gw_spec *spec);

/** Return whether layers or neurons are divided over several ranks. */
static inline bool gw_mesh_divides(const gw_mesh_shape *s) {
    return s->size[GW_DIM_PIPE] > 1 || s->size[GW_DIM_TENSOR] > 1;
}

/** Place `rank` of `ranks`, without communicators. GW_ERR_USAGE: so many make no such mesh. */
gw_err gw_mesh_place(gw_mesh *out, const gw_mesh_shape *shape, int rank, int ranks);

/** Make the communicators and place this rank. GW_ERR_USAGE on all ranks: so many make no such
 *  mesh. Call gw_mesh_close also after an error. Both are collective over `comm`. */
gw_err gw_mesh_open(gw_mesh *out, const gw_mesh_shape *shape, MPI_Comm comm);
void gw_mesh_close(gw_mesh *m);

/** Write it as for --mesh, without sizes 1: "data=2,pipe=2"; "": all are 1. 48 bytes suffice. */
void gw_mesh_text(const gw_mesh_shape *s, char *out, size_t cap);

/** Return the replica group: one number for all ranks that differ only in the data coordinate. */
int gw_mesh_group(const gw_mesh *m);

/** Return the rank, in the mesh's own communicator, at these coordinates, by gw_dim. */
int gw_mesh_rank(const gw_mesh *m, const int at[GW_DIMS]);

#endif
