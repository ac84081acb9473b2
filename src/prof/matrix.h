/** The communication matrix: messages and bytes that this rank handed to MPI for each other one, by
 *  rank of MPI_COMM_WORLD and by dimension (base/probe.h), inside batches (as gw_batch_cost counts
 *  them). Point-to-point only: whom MPI's own collectives send to is not told;
 *  gw_ledger_collectives has their modelled bytes. One matrix a process. */
#ifndef GW_PROF_MATRIX_H
#define GW_PROF_MATRIX_H

#include "mpi/agree.h"

#include <stdint.h>

/** Begin a row of zeros, for all ranks there are. Between batches. */
gw_err gw_matrix_open(void);

/** Without an open matrix nothing happens. */
void gw_matrix_close(void);

/** For pmpi*.c, any thread: the rank of MPI_COMM_WORLD that is `rank` of `comm`; -1: none, or no
 *  matrix is open. */
int gw_matrix_peer(int rank, MPI_Comm comm);

/** For pmpi*.c, any thread: a message to `peer` (-1: nothing happens). Returns `bytes`. */
uint64_t gw_matrix_sent(int peer, uint64_t bytes);

/** Between batches, while nothing is in flight: what is sent until the matrix resumes does not
 * count.
 */
void gw_matrix_pause(void);
void gw_matrix_resume(void);

typedef struct gw_matrix_total {
    uint64_t messages, bytes;               /* in the matrix, all ranks */
    uint64_t collectives, collective_bytes; /* calls of MPI's, and what they send by model */
} gw_matrix_total;

/** Collective, between batches: rank 0 writes DIR/matrix.csv (dir NULL: no file). */
gw_err gw_matrix_write(const char *dir, gw_matrix_total *total, MPI_Comm comm);

/** What the DIR/matrix.csv of an earlier start adds up to. GW_ERR_INPUT: there is none, or it is no
 *  matrix. */
gw_err gw_matrix_read(const char *dir, gw_matrix_total *total);

#endif
