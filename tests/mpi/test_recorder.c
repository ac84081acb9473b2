/* The calls of a recorder: each is refused out of its turn, on all ranks, and changes nothing. */
#include "machine/host.h"
#include "record/recorder.h"
#include "run/session.h"

#include "../specs.h"
#include "check.h"

static void refused(gw_err e, const char *call) {
    CHECK(e == GW_ERR_INTERNAL, "%s out of its turn: %d", call, e);
}

static gw_err step(gw_recorder *r, int64_t number) {
    const char *warning;
    gw_batch_parts parts = {.rank = me,
                            .epoch = 1,
                            .step = number,
                            .samples = 2,
                            .loss_sum = 2 * number,
                            .counts = gw_batch_no_counts,
                            .split = gw_batch_no_split};
    gw_ledger_begin();
    gw_ledger_end(&parts.cost);
    return gw_recorder_step(r, &parts, false, &warning);
}

static gw_session *exchange(void) {
    static const gw_span layer = {0, 8};
    gw_session_setup setup = {.n = layer.n, .layers = &layer, .n_layers = 1, .yield = true};
    gw_session *s;
    CHECK_OK(new_session(&s, "allreduce", "none", "auto", false));
    CHECK_OK(gw_session_open(s, MPI_COMM_WORLD, &setup));
    return s;
}

int main(int argc, char **argv) {
    check_start(argc, argv);
    gw_recorder r = {0};
    gw_host_node node;
    gw_epoch_row row = {.epoch = 1};
    CHECK_OK(gw_host_node_of(&node, 1, MPI_COMM_WORLD));
    gw_recorder_setup of = {.comm = MPI_COMM_WORLD,
                            .rank = me,
                            .ranks = ranks,
                            .profile = GW_PROFILE_TIMERS,
                            .node = &node};
    gw_session *session = exchange();
    gw_recorder_opening o = {
        .repeats = {gw_repeat_of(1), gw_repeat_of(1)}, .session = session, .step = 5};
    refused(gw_recorder_open(&r, &o), "open");
    CHECK_OK(gw_recorder_claim(&r, &of));
    refused(gw_recorder_begin(&r), "begin");
    CHECK_OK(gw_recorder_open(&r, &o));
    refused(gw_recorder_open(&r, &o), "open");
    refused(step(&r, 6), "step");
    CHECK_OK(gw_recorder_begin(&r));
    for (int64_t i = 6; i < 10; i++)
        CHECK_OK(step(&r, i));
    CHECK_OK(gw_recorder_sums(&r, &row));
    CHECK(row.train_loss == 7.5 && row.step == 9, "loss %g, step %d", row.train_loss,
          (int)row.step);
    CHECK_OK(gw_recorder_epoch(&r, &row));
    CHECK_OK(gw_recorder_end(&r, ranks));
    CHECK(me > 0 || r.total.summary.batches == 4, "%d steps", (int)r.total.summary.batches);
    refused(gw_recorder_end(&r, ranks), "end");
    refused(gw_recorder_epoch(&r, &row), "epoch");
    gw_recorder_close(&r);
    gw_session_close(session);
    gw_session_free(session);
    MPI_Finalize();
    return 0;
}
