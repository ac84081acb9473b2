/* The files of a model: its own, with what it is and its parameters, and one that other programs
 * read. */
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "nn/model.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAGIC "GWMODEL1"
/* The largest model's parameters, and more than enough for the fields before them. */
#define LARGEST_FILE (GW_MAX_PARAMS * sizeof(float) + 4096)
/* 1: softmax, all layers initialised alike. 2 adds what is other than that, if something is; 3 the
 * name of another model than the perceptron. */
enum { VERSION = 3 };

/* The model by its name, as --model has it. A file cannot have a plugin loaded: it is the caller's
 * `plugin` that takes its place, or there is none. */
static gw_err model_io_name(gw_io *io, gw_model_spec *spec, const gw_spec *plugin,
                            const char *where) {
    char text[GW_MODEL_TEXT] = {0}, why[512];
    gw_spec *tree = NULL;
    memcpy(text, spec->text, sizeof text);
    GW_TRY(gw_io_field(io, "model", text, sizeof text));
    if (!gw_io_loading(io))
        return GW_OK;
    if (text[sizeof text - 1] || !*text || !gw_text_utf8(text))
        return gw_fail(GW_ERR_INPUT, "%sthe name of the model cannot be", where);
    gw_err e = gw_spec_parse(&tree, "model file", "model", text, GW_SPEC_ONE);
    if (e == GW_OK && strchr(tree->name, '/')) {
        if (!plugin || !strchr(plugin->name, '/'))
            e = gw_fail(GW_ERR_INPUT, "it is of the plugin %s: name it with --plugin", tree->name);
        else
            tree->name = plugin->name;
    }
    GW_THEN(e, gw_model_spec_choose(spec, tree));
    gw_spec_free(tree);
    if (e == GW_OK || e == GW_ERR_NOMEM)
        return e;
    snprintf(why, sizeof why, "%s", gw_err_text());
    return gw_fail(GW_ERR_INPUT, "%s%s", where, why);
}

/* A file's header of the model; fixed widths, whatever an enum's size. */
static gw_err model_io_spec(gw_io *io, gw_model_spec *spec, const gw_spec *plugin,
                            const char *where) {
    int32_t shape[5] = {spec->inputs, spec->classes, spec->n_hidden, (int32_t)spec->activation,
                        (int32_t)spec->init[0]};
    GW_TRY(gw_io_field(io, "shape", shape, sizeof shape));
    if (shape[2] < 0 || shape[2] >= GW_MAX_LAYERS)
        return gw_fail(GW_ERR_INPUT, "%s%d hidden layers: must be 0 to %d", where, (int)shape[2],
                       GW_MAX_LAYERS - 1);
    int32_t hidden[GW_MAX_LAYERS] = {0};
    for (int i = 0; i < shape[2]; i++)
        hidden[i] = spec->hidden[i];
    GW_TRY(gw_io_field(io, "hidden", hidden, (size_t)shape[2] * sizeof *hidden));
    GW_TRY(gw_io_field(io, "seed", &spec->seed, sizeof spec->seed));
    spec->inputs = shape[0];
    spec->classes = shape[1];
    spec->n_hidden = shape[2];
    spec->activation = (gw_activation)shape[3];
    spec->init[0] = (gw_init)shape[4];
    for (int i = 0; i < shape[2]; i++)
        spec->hidden[i] = hidden[i];
    if (gw_io_version(io) == 1)
        return GW_OK;
    int32_t head[2] = {(int32_t)spec->output, spec->n_init}, init[GW_MAX_LAYERS];
    GW_TRY(gw_io_field(io, "output", head, sizeof head));
    if (head[1] < 0 || head[1] > GW_MAX_LAYERS)
        return gw_fail(GW_ERR_INPUT, "%s%d initialisations: must be 0 to %d", where, (int)head[1],
                       GW_MAX_LAYERS);
    for (int i = 0; i < head[1]; i++)
        init[i] = (int32_t)spec->init[i];
    GW_TRY(gw_io_field(io, "init", init, (size_t)head[1] * sizeof *init));
    spec->output = (gw_output)head[0];
    spec->n_init = head[1];
    for (int i = 0; i < head[1]; i++)
        spec->init[i] = (gw_init)init[i];
    return gw_io_version(io) > 2 ? model_io_name(io, spec, plugin, where) : GW_OK;
}

gw_err gw_model_save(gw_model *m, const float *params, const char *dir, const char *name,
                     uint64_t *bytes, uint32_t *crc32) {
    gw_io *io = NULL;
    gw_model_spec spec = *gw_model_get_spec(m);
    float *data = (float *)params; /* it is only read */
    bool plain = spec.output == GW_OUTPUT_SOFTMAX && spec.n_init <= 1;
    GW_TRY(gw_io_save(&io, dir, name, MAGIC, *spec.text ? 3 : plain ? 1 : 2));
    gw_err e = model_io_spec(io, &spec, NULL, "");
    GW_THEN(e, gw_io_field(io, "params", data, gw_model_shard(m)->whole * sizeof *data));
    if (e == GW_OK)
        return gw_io_close_with(io, bytes, crc32);
    gw_io_abandon(io);
    return e;
}

gw_err gw_model_load(gw_model **out, const char *path, int max_batch, const gw_spec *plugin) {
    struct stat st;
    if (stat(path, &st) != 0)
        return gw_fail(GW_ERR_INPUT, "%s: %s", path, strerror(errno));
    char where[256];
    snprintf(where, sizeof where, "%.250s: ", path);
    gw_io *io = NULL;
    GW_TRY(gw_io_load(&io, path, MAGIC, VERSION, LARGEST_FILE));
    gw_model *m = NULL;
    gw_model_spec spec = {0};
    size_t found = 0;
    gw_err e = model_io_spec(io, &spec, plugin, where);
    GW_THEN(e, gw_model_spec_check(&spec, GW_ERR_INPUT, where, &found));
    /* A file's size limits the number that it may claim, before memory is allocated for it. */
    if (e == GW_OK && found > (size_t)st.st_size / sizeof(float))
        e = gw_fail(GW_ERR_INPUT, "%struncated: %zu parameters in %zu bytes", where, found,
                    (size_t)st.st_size);
    GW_THEN(e, gw_model_build(&m, &spec, max_batch));
    GW_THEN(e, gw_io_field(io, "params", gw_model_params(m), found * sizeof(float)));
    e = gw_io_end(io, e);
    GW_OPENED(e, out, m, gw_model_close);
}

/* ---- safetensors ---- */

enum { ALIGN = 8 }; /* bytes: tensors begin at a multiple of this */

gw_err gw_safetensors_write(gw_model *m, const char *path) {
    const gw_tensor *tensors = gw_model_tensors(m);
    gw_file *f = NULL;
    /* {"layer.0.0": {"dtype": "F32", "shape": [784, 16], "data_offsets": [0, 50176]}, ..} */
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
    char *header = json_dumps(all, JSON_COMPACT);
    json_decref(all);
    if (!header)
        return gw_fail(GW_ERR_NOMEM, "%s: out of memory", path);
    gw_err e = gw_file_create_at(&f, path);
    if (e == GW_OK) { /* the header's length in 8 bytes, the header with spaces up to ALIGN, the
                         floats: little-endian, as this machine is */
        FILE *to = gw_file_stream(f);
        uint64_t len = strlen(header), whole = (len + ALIGN - 1) / ALIGN * ALIGN;
        fwrite(&whole, sizeof whole, 1, to);
        fprintf(to, "%s%*s", header, (int)(whole - len), "");
        fwrite(gw_model_params(m), sizeof(float), gw_model_size(m), to);
        e = gw_file_commit(&f);
    }
    free(header);
    return e;
}
