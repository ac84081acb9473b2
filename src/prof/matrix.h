/** The communication matrix: messages and bytes that this rank passed to MPI for each other rank,
 *  by rank of MPI_COMM_WORLD and by dimension (base/probe.h), inside batches (as gw_batch_cost
 *  counts them). Point-to-point only, since MPI does not tell to whom its collectives send;
 *  gw_ledger_collectives has their modelled bytes. One matrix per process. */
#ifndef GW_PROF_MATRIX_H
#define GW_PROF_MATRIX_H

#include "mpi/agree.h"

#include <stdint.h>

/** Begin a row of zeros, for all ranks there are. Between batches. */
gw_err gw_matrix_open(void);

/** Close; without an open matrix, do nothing. */
void gw_matrix_close(void);

/** For pmpi*.c, any thread: return the rank in MPI_COMM_WORLD of `rank` of `comm`; -1: none, or no
 *  matrix is open. */
int gw_matrix_peer(int rank, MPI_Comm comm);

/** For pmpi*.c, any thread: count a message to `peer` (-1: do nothing). Return `bytes`. */
uint64_t gw_matrix_sent(int peer, uint64_t bytes);

typedef struct gw_matrix_total {
    uint64_t messages, bytes;               /* in the matrix, all ranks */
    uint64_t collectives, collective_bytes; /* calls of MPI's, and what they send by model */
} gw_matrix_total;

/** Sum up; rank 0 writes DIR/matrix.csv (dir NULL: no file). Collective, between batches. */
gw_err gw_matrix_write(const char *dir, gw_matrix_total *total, MPI_Comm comm);

/** Sum up the DIR/matrix.csv of an earlier start. GW_ERR_INPUT: there is none, or it is no
 *  matrix. */
gw_err gw_matrix_read(const char *dir, gw_matrix_total *total);

#endif
