#include "nn/safetensors.h"

#include "base/file.h"
#include "base/json.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGN = 8 }; /* bytes: tensors begin at a multiple of this */

/* {"layer.0.0": {"dtype": "F32", "shape": [784, 16], "data_offsets": [0, 50176]}, ..} */
static json_t *safetensors_header(const gw_model *m) {
    const gw_tensor *tensors = gw_model_tensors(m);
    json_t *all = json_object();
    for (int t = 0, of = 0; t < gw_model_tensor_count(m); t++) {
        const gw_tensor *x = &tensors[t];
        char name[48];
        of = t > 0 && tensors[t - 1].layer == x->layer ? of + 1 : 0;
        snprintf(name, sizeof name, "layer.%d.%d", x->layer, of);
        json_t *shape = json_array(), *offsets = json_array();
        if (x->rows > 1)
            json_array_append_new(shape, json_integer(x->rows));
        json_array_append_new(shape, json_integer(x->cols));
        json_array_append_new(offsets, json_integer((json_int_t)(4 * x->span.off)));
        json_array_append_new(offsets, json_integer((json_int_t)(4 * gw_span_end(x->span))));
        json_object_set_new(
            all, name, gw_json_object("dtype:s shape:o data_offsets:o", "F32", shape, offsets));
    }
    return all;
}

/* The header's length in 8 bytes, the header with spaces up to ALIGN, the floats: little-endian, as
 * this machine is. */
static void safetensors_put(gw_model *m, const char *header, FILE *to) {
    uint64_t len = strlen(header), whole = (len + ALIGN - 1) / ALIGN * ALIGN;
    fwrite(&whole, sizeof whole, 1, to);
    fprintf(to, "%s%*s", header, (int)(whole - len), "");
    fwrite(gw_model_params(m), sizeof(float), gw_model_size(m), to);
}

gw_err gw_safetensors_write(gw_model *m, const char *path) {
    gw_file *f = NULL;
    json_t *all = safetensors_header(m);
    char *header = json_dumps(all, JSON_COMPACT);
    json_decref(all);
    if (!header)
        return gw_fail(GW_ERR_NOMEM, "%s: out of memory", path);
    gw_err e = gw_file_create_at(&f, path);
    if (e == GW_OK) {
        safetensors_put(m, header, gw_file_stream(f));
        e = gw_file_commit(&f);
    }
    free(header);
    return e;
}
