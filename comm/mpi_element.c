#include "comm/mpi_element.h"

#include <stdint.h>
#include <stdlib.h>

const char *gw_mpi_element_refuses(const gw_args *args, const gw_codec *codec) {
    (void)args;
    if (codec->framed)
        return "MPI cannot add what is in frames (wire check); use algo=sra";
    return gw_codec_summable(codec) ? NULL : "MPI cannot add its encodings; use algo=sra";
}

gw_mpi_units gw_mpi_units_of(const gw_codec *codec, size_t n) {
    size_t prefix = gw_codec_prefix(codec, n);
    return (gw_mpi_units){prefix, (gw_codec_bound(codec, n) - prefix) / codec->ops->unit_bytes};
}

/* An MPI_Op carries no context, so the element type does: an attribute names the codec. */
static int keyval = MPI_KEYVAL_INVALID;
static MPI_Op add_encoded = MPI_OP_NULL;

static void element_add(void *in, void *inout, int *len, MPI_Datatype *type) {
    const gw_codec_ops *codec = NULL;
    int found = 0;
    MPI_Type_get_attr(*type, keyval, (void *)&codec, &found);
    if (!found)
        abort(); /* an MPI library that loses attributes would sum nothing, unnoticed */
    codec->add(inout, in, (size_t)*len * codec->unit_bytes);
}

enum { MOST_CODECS = 64 };

static struct {
    const gw_codec_ops *ops;
    MPI_Datatype type;
} known[MOST_CODECS];

/* MPI_Finalize first deletes the attributes of MPI_COMM_SELF: the last moment to free what lived
 * as long as MPI did. */
static int element_free_all(MPI_Comm self, int at_exit, void *value, void *extra) {
    (void)self, (void)at_exit, (void)value, (void)extra;
    for (int i = 0; i < MOST_CODECS && known[i].ops; i++) {
        MPI_Type_free(&known[i].type);
        known[i].ops = NULL;
    }
    MPI_Op_free(&add_encoded);
    return MPI_Type_free_keyval(&keyval);
}

gw_err gw_mpi_element_of(const gw_codec *codec, gw_mpi_element *out) {
    if (codec->ops->sum != GW_SUM_OWN) {
        *out = (gw_mpi_element){codec->ops->sum == GW_SUM_INT8 ? MPI_INT8_T : MPI_FLOAT, MPI_SUM};
        return GW_OK;
    }
    if (keyval == MPI_KEYVAL_INVALID) {
        int at_exit;
        GW_MPI(MPI_Type_create_keyval(MPI_TYPE_DUP_FN, MPI_TYPE_NULL_DELETE_FN, &keyval, NULL));
        GW_MPI(MPI_Op_create(element_add, 1, &add_encoded));
        GW_MPI(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, element_free_all, &at_exit, NULL));
        GW_MPI(MPI_Comm_set_attr(MPI_COMM_SELF, at_exit, NULL));
        GW_MPI(MPI_Comm_free_keyval(&at_exit)); /* goes when the attribute does */
    }
    int i = 0;
    while (i < MOST_CODECS && known[i].ops && known[i].ops != codec->ops)
        i++;
    if (i == MOST_CODECS)
        return gw_fail(GW_ERR_INTERNAL, "more than %d codecs in one process", MOST_CODECS);
    if (!known[i].ops) {
        GW_MPI(MPI_Type_contiguous((int)codec->ops->unit_bytes, MPI_BYTE, &known[i].type));
        GW_MPI(MPI_Type_commit(&known[i].type));
        GW_MPI(MPI_Type_set_attr(known[i].type, keyval, (void *)(uintptr_t)codec->ops));
        known[i].ops = codec->ops;
    }
    *out = (gw_mpi_element){known[i].type, add_encoded};
    return GW_OK;
}
