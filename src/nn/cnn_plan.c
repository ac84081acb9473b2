#include "nn/cnn_plan.h"

#include <math.h>
#include <string.h>

enum { LENET5, RESNET };
enum { STAGES = 3 };

typedef struct self {
    int64_t preset, width, blocks, channels;
} self;

static const self *cnn_self(const gw_model_spec *spec) {
    return (const self *)spec->self;
}

gw_err gw_cnn_open(gw_model_spec *spec, const gw_args *args) {
    self *me = (self *)spec->self;
    bool resnet = strcmp(gw_args_text(args, "preset"), "resnet") == 0;
    *me = (self){resnet ? RESNET : LENET5, gw_args_int(args, "width"), gw_args_int(args, "blocks"),
                 gw_args_int(args, "channels")};
    if (!resnet && (gw_args_given(args, "width") || gw_args_given(args, "blocks")))
        return gw_fail(GW_ERR_USAGE, "cnn: width and blocks are of preset=resnet");
    return GW_OK;
}

int gw_cnn_units(const gw_model_spec *spec) {
    const self *me = cnn_self(spec);
    return me->preset == LENET5 ? 5 : 2 + STAGES * (int)me->blocks;
}

/* The side of a sample's image; 0: it is no square. */
static int cnn_side(const gw_model_spec *spec) {
    int channels = (int)cnn_self(spec)->channels;
    int side = (int)lround(sqrt((double)spec->inputs / channels));
    return side * side * channels == spec->inputs ? side : 0;
}

const char *gw_cnn_refuses(const gw_model_spec *spec) {
    if (cnn_side(spec) == 0)
        return "they must be `channels` square images: give --image-size, or for colour images "
               "cnn:channels=3";
    return cnn_self(spec)->preset == LENET5 && cnn_side(spec) < 12
               ? "lenet5 takes images of 12 x 12 or more: give --image-size, or preset=resnet"
               : NULL;
}

static gw_conv cnn_conv(int channels, int side, int filters, int kernel, int stride, int pad) {
    return (gw_conv){.channels = channels,
                     .rows = side,
                     .cols = side,
                     .filters = filters,
                     .kernel = kernel,
                     .stride = stride,
                     .pad = pad};
}

static gw_cnn_unit cnn_convolution(gw_conv c, bool norm, bool pool) {
    int rows = gw_conv_rows(&c), cols = gw_conv_cols(&c);
    return (gw_cnn_unit){.kind = GW_CNN_CONVOLUTION,
                         .first = c,
                         .norm = norm,
                         .pool = pool,
                         .in = c.rows * c.cols * c.channels,
                         .out = c.filters * (pool ? rows / 2 * (cols / 2) : rows * cols)};
}

static gw_cnn_unit cnn_dense(int in, int out) {
    return (gw_cnn_unit){.kind = GW_CNN_DENSE, .in = in, .out = out, .places = 1};
}

static gw_cnn_unit cnn_lenet5(const gw_model_spec *spec, int l) {
    int side = cnn_side(spec), channels = (int)cnn_self(spec)->channels;
    gw_conv one = cnn_conv(channels, side, 6, 5, 1, 2);
    one.planes = true;
    gw_conv two = cnn_conv(6, side / 2, 16, 5, 1, 0);
    int flat = 16 * (gw_conv_rows(&two) / 2) * (gw_conv_cols(&two) / 2);
    switch (l) {
    case 0: return cnn_convolution(one, false, true);
    case 1: return cnn_convolution(two, false, true);
    case 2: return cnn_dense(flat, 120);
    case 3: return cnn_dense(120, 84);
    default: return cnn_dense(84, spec->classes);
    }
}

static gw_cnn_unit cnn_resnet(const gw_model_spec *spec, int l) {
    const self *me = cnn_self(spec);
    int side = cnn_side(spec), width = (int)me->width, blocks = (int)me->blocks;
    gw_conv entry = cnn_conv((int)me->channels, side, width, 3, 1, 1);
    entry.planes = true;
    if (l == 0)
        return cnn_convolution(entry, true, false);
    int stage = l + 1 == gw_cnn_units(spec) ? STAGES - 1 : (l - 1) / blocks;
    bool opens = stage > 0 && (l - 1) % blocks == 0; /* halves the image, doubles the channels */
    for (int s = 0; s < stage; s++) {
        bool now = s + 1 == stage && opens && l + 1 < gw_cnn_units(spec);
        side = now ? side : (side + 1) / 2;
        width *= now ? 1 : 2;
    }
    if (l + 1 == gw_cnn_units(spec))
        return (gw_cnn_unit){.kind = GW_CNN_HEAD,
                             .in = side * side * width,
                             .out = spec->classes,
                             .places = side * side};
    int stride = opens ? 2 : 1, filters = opens ? 2 * width : width;
    gw_cnn_unit u = {.kind = GW_CNN_BLOCK,
                     .first = cnn_conv(width, side, filters, 3, stride, 1),
                     .across = cnn_conv(width, side, filters, 1, stride, 0),
                     .crosses = opens,
                     .norm = true,
                     .in = side * side * width};
    u.second = cnn_conv(filters, gw_conv_rows(&u.first), filters, 3, 1, 1);
    u.out = filters * gw_conv_places(&u.second);
    return u;
}

gw_cnn_unit gw_cnn_plan(const gw_model_spec *spec, int l) {
    return cnn_self(spec)->preset == LENET5 ? cnn_lenet5(spec, l) : cnn_resnet(spec, l);
}

const gw_opt gw_cnn_opts[] = {
    {"preset", GW_OPT_CHOICE, "lenet5", 0, 0, "lenet5|resnet", NULL,
     "two convolutions and three dense layers, or residual blocks"},
    {"width", GW_OPT_INT, "16", 1, 1024, NULL, "N",
     "resnet: channels of the first of its three stages"},
    {"blocks", GW_OPT_INT, "1", 1, 20, NULL, "N", "resnet: residual blocks per stage"},
    {"channels", GW_OPT_INT, "1", 1, 16, NULL, "N", "planes of a sample, a square image"},
    {0}};
