/* A trial of the contract on ranks that are coroutines of this process. */
#include "exchange.h"

#include "comm/fabric/sim.h"
#include "mpi/team.h"
#include "prof/ledger.h"

#include "../mpi/check.h"

#include <stdlib.h>

enum { MOST = 8 /* ranks */ };

typedef struct simulated {
    const trial *t;
    struct {
        gw_ledger *ledger;
        MPI_Comm comm;
        outcome o;
    } rank[MOST];
} simulated;

static void simulated_turn(void *ctx, int rank) {
    simulated *of = ctx;
    exchange_be(rank, of->rank[rank].comm, true);
    gw_ledger_use(of->rank[rank].ledger);
}

static gw_err simulated_rank(void *ctx, gw_fabric *fabric) {
    simulated *of = ctx;
    int rank = fabric->rank;
    GW_TRY(gw_sim_comm(fabric, &of->rank[rank].comm));
    simulated_turn(ctx, rank);
    gw_ledger_start();
    gw_err e = exchange_run(of->t, &of->rank[rank].o);
    gw_comm_free(&of->rank[rank].comm);
    return e;
}

uint32_t exchange_simulate(const trial *t, int n) {
    static const gw_spec star = {.text = "star", .name = "star"};
    gw_network *network;
    simulated of = {.t = t};
    CHECK_OK(gw_network_open(&network, &star, n, 1e8));
    for (int r = 0; r < n; r++)
        CHECK_OK(gw_ledger_new(&of.rank[r].ledger));
    gw_sim_setup world = {.ranks = n,
                          .per_host = 1,
                          .network = network,
                          .link = {1e8, 1e-5, 1e-6},
                          .memory = {1e10, 1e-6, 0},
                          .carries = true,
                          .stack = 1 << 20,
                          .turn = simulated_turn};
    int own = exchange_be(0, MPI_COMM_WORLD, true);
    gw_err e = gw_sim_run(&world, simulated_rank, &of);
    gw_ledger_use(NULL);
    exchange_be(own, MPI_COMM_WORLD, false);
    CHECK(e == GW_OK, "%s %s n=%zu simulated: %s", t->comm, t->codec, t->n, gw_err_text());
    for (int r = 0; r < n; r++)
        free(of.rank[r].ledger);
    gw_network_close(network);
    return of.rank[0].o.crc;
}
