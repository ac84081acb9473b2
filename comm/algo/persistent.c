/* persistent: MPI's allreduce, prepared once. When a span is laid down, MPI_Allreduce_init (MPI 4.0
 * chapter 6.13) gives the library buffer, type, operator and communicator, so it can choose its
 * algorithm and build its schedule then; each step only starts it.
 *
 *  1. Encode the span if there is a codec; MPI must be able to add its encodings, as for native.
 *  2. MPI_Start; complete it like any other request.
 *  3. Decode.
 *
 * Bytes: 2(P-1)/P of the encoded span a rank, as for native, since MPI does not tell; no messages
 * of our own. A library of MPI 3 lacks these calls: refused. Other collectives are the kit's. Why
 * persistent: Holmes, Morgan, Skjellum et al., "Planning for performance: enhancing achievable
 * performance for MPI through persistent collective operations", Parallel Computing 81, 2019. */
#include "comm/algo.h"

#include "base/mem.h"
#include "comm/mpi_element.h"

#include <stdlib.h>

static const char *persistent_refuses(const gw_args *args, const gw_codec *codec) {
    if (MPI_VERSION < 4)
        return "it needs a library of MPI 4, and this one is older: use algo=native";
    if (gw_codec_agrees(codec))
        return "its ranks agree on a scale before each exchange, which is two collectives: use "
               "algo=native";
    return gw_mpi_element_refuses(args, codec);
}

static gw_err persistent_issue(void *ctx, MPI_Request *request) {
    MPI_Request *kept = ctx;
    GW_MPI(MPI_Start(kept));
    if (!request)
        return gw_mpi_check(MPI_Wait(kept, MPI_STATUS_IGNORE), "MPI_Wait");
    *request = *kept; /* completion does not free a persistent handle */
    return GW_OK;
}

static void persistent_release(void *ctx) {
    MPI_Request *kept = ctx;
    if (*kept != MPI_REQUEST_NULL)
        MPI_Request_free(kept);
    free(kept);
}

static gw_err persistent_lay_down(const gw_args *args, gw_schedule *s, gw_verb what, int root) {
    (void)args, (void)what, (void)root;
    const gw_lane *lane = gw_schedule_lane(s);
    gw_span span = gw_schedule_span(s);
    MPI_Request *kept = NULL; /* inactive between steps */
    gw_mpi_element e;
    int slot;
    GW_TRY(gw_schedule_pack(s, span, false, &slot));
    GW_TRY(gw_alloc(&kept, 1, sizeof *kept));
    *kept = MPI_REQUEST_NULL;
    GW_TRY(gw_schedule_own(s, kept, persistent_release));
    GW_TRY(gw_mpi_element_of(gw_lane_codec(lane), &e));
#if MPI_VERSION >= 4 /* with an older one it was refused */
    gw_mpi_units u = gw_mpi_units_of(gw_lane_codec(lane), span.n);
    char *data = gw_schedule_slot_data(s, slot);
    GW_MPI(MPI_Allreduce_init_c(MPI_IN_PLACE, data + u.prefix, (MPI_Count)u.count, e.type, e.op,
                                gw_lane_comm(lane), MPI_INFO_NULL, kept));
#endif
    GW_TRY(gw_schedule_call(s, persistent_issue, kept));
    GW_TRY(gw_schedule_round(s));
    return gw_schedule_unpack(s, slot, span, false);
}

static gw_cost persistent_cost(const gw_args *args, gw_lane *lane, gw_verb what, size_t n) {
    (void)args, (void)what;
    const gw_codec *codec = gw_lane_codec(lane);
    uint64_t units = gw_codec_bound(codec, n) - gw_codec_prefix(codec, n);
    return (gw_cost){2 * (uint64_t)(gw_lane_size(lane) - 1) * units, 0};
}

const gw_algo_ops gw_algo_persistent = {
    .head = {GW_ALGO_ABI, "persistent", "the MPI library's allreduce, prepared once (MPI 4)", NULL},
    .caps = GW_ALGO_ORDERED | GW_ALGO_ONCE,
    .formula = "2(P-1) b bytes (the optimum; MPI does not say), no messages of its own",
    .refuses = persistent_refuses,
    .lay_down = persistent_lay_down,
    .cost = persistent_cost,
};
