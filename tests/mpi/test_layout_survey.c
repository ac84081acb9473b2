/* Groups of a mesh on two emulated nodes: which of them cross a link, and hops between all
 * neighbours of a pipe. No figure is looked at that depends on how fast this machine is. */
#include "select/layout_survey.h"

#include "mpi/wait.h"

#include "../specs.h"
#include "check.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

enum { SAMPLES = 8, INPUTS = 12, MOST = 4 };

static int me, ranks, node[MOST]; /* of each rank: the lowest rank there */

static void find_nodes(void) {
    MPI_Comm here;
    int lowest = me;
    CHECK_MPI(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here));
    CHECK_OK(gw_bcast(&lowest, 1, MPI_INT, 0, here));
    CHECK_MPI(MPI_Comm_free(&here));
    CHECK_MPI(MPI_Allgather(&lowest, 1, MPI_INT, node, 1, MPI_INT, MPI_COMM_WORLD));
}

/* Does any group of `size` ranks, `stride` apart, have ranks of two nodes? */
static bool crosses(int size, int stride) {
    for (int r = 0; r < ranks; r++) {
        int at = r / stride % size;
        if (node[r] != node[r - at * stride])
            return true;
    }
    return false;
}

static gw_layout layout_of(const char *mesh) {
    gw_layout l = {.split = GW_SPLIT_PAIRS, .micro = 2};
    const gw_spec *spec = NULL;
    CHECK_OK(keep_spec(&spec, mesh, GW_SPEC_COMMAS));
    CHECK_OK(keep_spec(&l.timetable, "1f1b", GW_SPEC_ONE));
    CHECK_OK(gw_mesh_parse(&l.shape, spec));
    return l;
}

/* All meshes of two dimensions, both ways round, and those of one. */
static int list(gw_layout *out) {
    static const char *const dims[] = {"data", "pipe", "tensor"};
    int n = 0;
    for (int a = 0; a < GW_DIMS; a++)
        for (int b = 0; b < GW_DIMS; b++)
            for (int size = 1; size <= ranks; size++) {
                char text[64];
                if (a == b || ranks % size != 0)
                    continue;
                snprintf(text, sizeof text, "%s=%d,%s=%d%s", dims[a], size, dims[b], ranks / size,
                         a && b ? ",data=1" : "");
                out[n++] = layout_of(text);
            }
    return n;
}

static void check_curves(const gw_layout_survey *s) {
    for (int i = 0; i < s->n_curves; i++) {
        const gw_group_curve *g = &s->curve[i];
        CHECK(g->link == crosses(g->size, g->stride), "groups of %d ranks, %d apart: link %d",
              g->size, g->stride, g->link);
        for (int k = 0; k < g->hop.n; k++)
            CHECK(g->hop.bytes[k] > 0 && g->hop.time_s[k] > 0, "%d ranks: %g bytes take %g s",
                  g->size, g->hop.bytes[k], g->hop.time_s[k]);
    }
}

static void check_price(const gw_layout *l, const gw_layout_price *price) {
    int size = l->shape.size[GW_DIM_TENSOR], stride = 1;
    for (int i = GW_DIMS - 1; l->shape.order[i] != GW_DIM_TENSOR; i--)
        stride *= l->shape.size[l->shape.order[i]];
    CHECK(price->link == (size > 1 && crosses(size, stride)), "%d tensor ranks, %d apart: link %d",
          size, stride, price->link);
}

static void survey(void) {
    uint8_t images[SAMPLES * INPUTS];
    gw_label labels[SAMPLES];
    gw_session *session;
    gw_model_spec spec = {.inputs = INPUTS,
                          .classes = 6,
                          .n_hidden = 3,
                          .hidden = {16, 12, 8},
                          .activation = GW_RELU,
                          .init = {GW_INIT_HE},
                          .seed = 1};
    gw_dataset set = {SAMPLES, SAMPLES, 0, SAMPLES, 1, INPUTS, 1, INPUTS, images, labels, 1};
    gw_train_config c = {.batch = SAMPLES, .until.epochs = 1, .run.threads = 1, .run.seed = 1};
    gw_place_setup place = {.comm = MPI_COMM_WORLD, .c = &c, .spec = &spec, .set = &set};
    gw_layout_survey s = {.place = &place, .yield = true, .budget_s = 0.1};
    gw_layout layout[64];
    gw_layout_price *price = calloc(64, sizeof *price);
    for (int i = 0; i < SAMPLES * INPUTS; i++)
        images[i] = (uint8_t)(37 * i);
    for (int i = 0; i < SAMPLES; i++)
        labels[i] = (gw_label)(i % 6);
    CHECK_OK(keep_spec(&c.run.comm, "allreduce", GW_SPEC_ONE));
    CHECK_OK(new_session(&session, "allreduce", "none", "auto", false));
    s.session = session;
    int n = list(layout);
    CHECK_OK(gw_layouts_survey(&s, layout, n, price));
    CHECK(s.n_curves > 0 || ranks == 1, "nothing was measured");
    check_curves(&s);
    for (int i = 0; i < n; i++)
        check_price(&layout[i], &price[i]);
    gw_session_free(session);
    free(price);
}

int main(int argc, char **argv) {
    setenv("MPIR_CVAR_ODD_EVEN_CLIQUES", "1", 1); /* MPICH: odd and even ranks are two nodes */
    MPI_Init(&argc, &argv);
    CHECK_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &me));
    ranks = check_ranks(argc, argv);
    gw_wait_yields(ranks >= sysconf(_SC_NPROCESSORS_ONLN));
    find_nodes();
    survey();
    MPI_Finalize();
    return 0;
}
