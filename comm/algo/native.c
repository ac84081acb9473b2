/* native: the MPI library's own collectives. Exact lanes hand it the floats and MPI_SUM. A codec
 * that can add encoded values (fp16, bf16) is reduced in encoded form with an MPI_Op of its own, so
 * the sum is rounded to the wire's precision at each of the library's hops.
 *
 * Which messages MPI sends is its own affair; `wire_bytes` states what the bandwidth-optimal
 * algorithm sends, 2(P-1)/P of the encoded span a rank, as the ledger does. */
#include "comm/algo.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

static const char *refuses(const gw_args *args, const gw_codec_ops *codec) {
    (void)args;
    if ((codec->caps & GW_CODEC_IDENTITY) || codec->add)
        return NULL;
    return "MPI cannot add its encodings; use algo=sra";
}

typedef struct native_call {
    gw_verb what;
    const gw_lane *lane;
    void *data; /* the whole span, encoded */
    size_t n;
    int root;
    void *parts; /* the root's own part, apart from where the sum goes; NULL: in place */
    size_t bytes;
} native_call;

/* An MPI_Op carries no context, so the element type does: an attribute names the codec. */
static int keyval = MPI_KEYVAL_INVALID;
static MPI_Op add_encoded = MPI_OP_NULL;

static void add_units(void *in, void *inout, int *len, MPI_Datatype *type) {
    const gw_codec_ops *codec = NULL;
    int found = 0;
    MPI_Type_get_attr(*type, keyval, (void *)&codec, &found);
    if (!found)
        abort(); /* an MPI library that loses attributes would sum nothing, unnoticed */
    codec->add(inout, in, (size_t)*len * codec->unit_bytes);
}

typedef struct element {
    MPI_Datatype type;
    MPI_Op op;
} element;

enum { MOST_CODECS = 64 };

static struct {
    const gw_codec_ops *ops;
    MPI_Datatype type;
} known[MOST_CODECS];

/* MPI_Finalize first deletes the attributes of MPI_COMM_SELF: the last moment to free what lived
 * as long as MPI did. */
static int free_elements(MPI_Comm self, int at_exit, void *value, void *extra) {
    (void)self, (void)at_exit, (void)value, (void)extra;
    for (int i = 0; i < MOST_CODECS && known[i].ops; i++) {
        MPI_Type_free(&known[i].type);
        known[i].ops = NULL;
    }
    MPI_Op_free(&add_encoded);
    return MPI_Type_free_keyval(&keyval);
}

static gw_err first_use(void) {
    int at_exit;
    GW_MPI(MPI_Type_create_keyval(MPI_TYPE_DUP_FN, MPI_TYPE_NULL_DELETE_FN, &keyval, NULL));
    GW_MPI(MPI_Op_create(add_units, 1, &add_encoded));
    GW_MPI(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, free_elements, &at_exit, NULL));
    GW_MPI(MPI_Comm_set_attr(MPI_COMM_SELF, at_exit, NULL));
    GW_MPI(MPI_Comm_free_keyval(&at_exit)); /* goes when the attribute does */
    return GW_OK;
}

static gw_err element_of(const gw_codec *codec, element *out) {
    if (codec->ops->caps & GW_CODEC_IDENTITY) {
        *out = (element){MPI_FLOAT, MPI_SUM};
        return GW_OK;
    }
    if (keyval == MPI_KEYVAL_INVALID)
        GW_TRY(first_use());
    int i = 0;
    while (i < MOST_CODECS && known[i].ops && known[i].ops != codec->ops)
        i++;
    if (i == MOST_CODECS)
        return gw_fail(GW_ERR_INTERNAL, "native: more than %d codecs in one process", MOST_CODECS);
    if (!known[i].ops) {
        GW_MPI(MPI_Type_contiguous((int)codec->ops->unit_bytes, MPI_BYTE, &known[i].type));
        GW_MPI(MPI_Type_commit(&known[i].type));
        GW_MPI(MPI_Type_set_attr(known[i].type, keyval, (void *)(uintptr_t)codec->ops));
        known[i].ops = codec->ops;
    }
    *out = (element){known[i].type, add_encoded};
    return GW_OK;
}

static gw_err issue(void *ctx, MPI_Request *request) {
    native_call *c = ctx;
    const gw_lane *lane = c->lane;
    element e = {MPI_FLOAT, MPI_SUM};
    GW_TRY(element_of(lane->codec, &e));
    void *data = c->data;
    MPI_Count n = (MPI_Count)c->n;
    bool at_root = lane->rank == c->root;
    const void *send = at_root ? MPI_IN_PLACE : data;
    if (c->parts)
        send = memcpy(c->parts, data, c->bytes);
    switch (c->what) {
    case GW_ALLREDUCE:
        GW_MPI(request ? MPI_Iallreduce_c(MPI_IN_PLACE, data, n, e.type, e.op, lane->comm, request)
                       : MPI_Allreduce_c(MPI_IN_PLACE, data, n, e.type, e.op, lane->comm));
        break;
    case GW_REDUCE:
        GW_MPI(request ? MPI_Ireduce_c(send, data, n, e.type, e.op, c->root, lane->comm, request)
                       : MPI_Reduce_c(send, data, n, e.type, e.op, c->root, lane->comm));
        break;
    default:
        GW_MPI(request ? MPI_Ibcast_c(data, n, e.type, c->root, lane->comm, request)
                       : MPI_Bcast_c(data, n, e.type, c->root, lane->comm));
        break;
    }
    return GW_OK;
}

static gw_err make_room(gw_schedule *s, native_call *c) {
    c->bytes = gw_codec_bound(c->lane->codec, c->n);
    GW_TRY(gw_alloc(&c->parts, c->bytes, 1));
    return gw_schedule_own(s, c->parts, free);
}

static gw_err lay_down(gw_schedule *s, gw_verb what, int root) {
    gw_lane *lane = gw_schedule_lane(s);
    gw_span span = gw_schedule_span(s);
    if (lane->size == 1)
        return GW_OK;
    int slot;
    GW_TRY(gw_schedule_pack(s, span, false, &slot));
    if (slot == GW_NO_SLOT)
        return GW_OK;
    native_call *c = NULL;
    GW_TRY(gw_alloc(&c, 1, sizeof *c));
    *c = (native_call){.what = what,
                       .lane = lane,
                       .data = gw_schedule_slot_data(s, slot),
                       .n = span.n,
                       .root = root};
    GW_TRY(gw_schedule_own(s, c, free));
    if (what == GW_REDUCE && root > 0 && lane->rank == root)
        GW_TRY(make_room(s, c)); /* MPICH 4.0's MPI_Reduce reads MPI_IN_PLACE as an address there */
    GW_TRY(gw_schedule_call(s, issue, c));
    GW_TRY(gw_schedule_round(s));
    bool here = what != GW_REDUCE || lane->rank == root;
    return here ? gw_schedule_unpack(s, slot, span, false) : GW_OK;
}

static gw_err allreduce(const gw_args *args, gw_schedule *s) {
    (void)args;
    return lay_down(s, GW_ALLREDUCE, 0);
}

static gw_err reduce(const gw_args *args, gw_schedule *s, int root) {
    (void)args;
    return lay_down(s, GW_REDUCE, root);
}

static gw_err bcast(const gw_args *args, gw_schedule *s, int root) {
    (void)args;
    return lay_down(s, GW_BCAST, root);
}

static gw_cost cost(const gw_args *args, gw_lane *lane, gw_verb what, size_t n) {
    (void)args;
    uint64_t once = (uint64_t)(lane->size - 1) * gw_codec_bound(lane->codec, n);
    return (gw_cost){what == GW_ALLREDUCE ? 2 * once : once, 0};
}

const gw_algo_ops gw_algo_native = {
    .head = {GW_ALGO_ABI, "native", "the MPI library's own collectives", NULL},
    .caps = GW_ALGO_ORDERED,
    .formula = "2(P-1) b bytes (what is optimal; MPI does not tell), no messages of our own",
    .refuses = refuses,
    .allreduce = allreduce,
    .reduce = reduce,
    .bcast = bcast,
    .cost = cost,
};
