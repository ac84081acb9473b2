/** A codec's encodings as elements that MPI itself can add: MPI_FLOAT and MPI_SUM if the bytes are
 * the floats themselves, else our own type and MPI_Op around the codec's `add`. */
#ifndef GW_COMM_MPI_ELEMENT_H
#define GW_COMM_MPI_ELEMENT_H

#include "compress/codec.h"
#include "mpi/agree.h"

/** One unit of an encoding. Types and operator live until MPI_Finalize. */
typedef struct gw_mpi_element {
    MPI_Datatype type;
    MPI_Op op;
} gw_mpi_element;

/** Return why MPI cannot add this codec's encodings, or NULL; `refuses` of an algorithm. */
const char *gw_mpi_element_refuses(const gw_args *args, const gw_codec *codec);

/** For a codec that is not refused. Not thread-safe: call it while laying down. */
gw_err gw_mpi_element_of(const gw_codec *codec, gw_mpi_element *out);

/** Where the units lie in an encoding of n floats, and how many there are. */
typedef struct gw_mpi_units {
    size_t prefix, count; /* bytes before them */
} gw_mpi_units;
gw_mpi_units gw_mpi_units_of(const gw_codec *codec, size_t n);

#endif
