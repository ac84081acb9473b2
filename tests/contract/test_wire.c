/* What a codec owes on a lane: MPI sends its encodings and nothing else, in as many bytes as the
 * wire format says. */
#include "base/rng.h"
#include "mpi/wait.h"
#include "prof/ledger.h"
#include "run/session.h"

#include "../mpi/check.h"
#include "../specs.h"

#include <math.h>

enum { N = 1 << 16 };

/* Bytes of one message of N floats, worked out by hand from the wire formats and never read from a
 * codec. B: floats in a bucket; k: elements kept. A new codec needs no row here: the others are
 * held to their own `bound`. */
static const struct stated {
    const char *spec;
    uint64_t least, most; /* most = 0: exactly `least` */
} stated[] = {
    {"none", 262144, 0}, /* 4 N */
    {"fp16", 131072, 0}, /* 2 N */
    {"bf16", 131072, 0},
    {"qsgd", 65536 + 512, 0}, /* N bits / 8 of codes, 4 N / B of scales */
    {"qsgd:bits=2", 16384 + 512, 0},
    {"qsgd:bits=3", 24576 + 512, 0},
    {"qsgd:bits=4", 32768 + 512, 0},
    {"qsgd:bits=5", 40960 + 512, 0},
    {"qsgd:bits=7", 57344 + 512, 0},
    {"qsgd:bits=8,bucket=64", 65536 + 4096, 0},
    {"int8sum", 65536 + 512, 0}, /* N, and 4 N / B of scales */
    {"int8sum:bucket=64", 65536 + 4096, 0},
    {"thc", 65536 + 4 + 64, 0},  /* N, the signs' number, and 4 N / B of ranges; B = 4096 */
    {"natural", 65536 + 128, 0}, /* N, and N / B of windows */
    {"natural:bucket=64", 65536 + 1024, 0},
    {"ternary", 13108 + 412, 0}, /* N / 5 and 4 N / B, both rounded up; B = 640 */
    {"ternary:bucket=320", 13108 + 820, 0},
    {"onebit", 8192 + 512, 0}, /* N / 8, and 4 N / B of means */
    {"onebit:bucket=64", 8192 + 4096, 0},
    {"randomk", 8 + 2620, 0}, /* a key, and 4 k; k = 655 */
    {"randomk:ratio=0.1", 8 + 26216, 0},
    {"topk", 3279, 3533}, /* 4 + 5 k, and at most (N - k) / 255 for long gaps; k = 655 */
    {"topk:ratio=0.1", 32774, 33005},
    {"topk:ratio=1", 327684, 0},
    {"threshold:value=0", 327684, 0}, /* the same format: everything is kept, */
    {"threshold:value=9", 4, 0},      /* and nothing */
    {"zlib", 150000, 262145},         /* at least the random fractions, at most 1 + 4 N */
    {"topk+zlib", 1800, 3534},
    {"qsgd:bits=4+zlib", 0, 32768 + 512 + 1}, /* at most as it is, and a byte that says so */
};

static float gradient(int rank, int step, size_t i) {
    uint64_t key = gw_rng_key(gw_rng_key(77, (uint64_t)rank), (uint64_t)step);
    uint64_t u = gw_rng_u64(key, i);
    return u % 8 == 0 ? 0.0f : (float)((double)(u >> 11) * 0x1p-53 - 0.5);
}

/* ---- bytes ---- */

static void step(gw_session *s, int number, gw_batch_cost *cost) {
    gw_span all = {0, N};
    gw_update u;
    gw_ledger_begin();
    gw_session_begin(s, 1.0 / ranks);
    for (size_t i = 0; i < N; i++)
        s->env.grad[i] = gradient(me, number, i);
    CHECK_OK(gw_session_ready(s, all));
    CHECK_OK(gw_session_finish(s, all, &u));
    gw_ledger_end(cost);
}

/* Encodings are gathered: each goes to every other rank once, in `least` to `most` bytes. */
static void bytes_are_the_encodings(const char *codec, uint64_t least, uint64_t most) {
    enum { STEPS = 3 };
    gw_session *s = NULL;
    gw_span all = {0, N};
    gw_tensor tensor = {all, 0, 1, N};
    gw_session_setup setup = {.n = N,
                              .layers = &all,
                              .n_layers = 1,
                              .tensors = &tensor,
                              .n_tensors = 1,
                              .seed = 5,
                              .yield = true};
    CHECK_OK(new_session(&s, "allreduce:algo=gathersum", codec, "auto", false));
    CHECK_OK(gw_session_open(s, MPI_COMM_WORLD, &setup));
    uint64_t wire = 0, others = (uint64_t)ranks - 1;
    for (int k = 0; k < STEPS; k++) {
        gw_batch_cost cost;
        step(s, k, &cost);
        wire += cost.wire_bytes;
    }
    const gw_coded *coded = s->coded;
    uint64_t encoded = (s->mix.codec->caps & GW_CODEC_IDENTITY) || ranks == 1
                           ? (uint64_t)STEPS * N * sizeof(float)
                           : coded->bytes;
    CHECK(wire == others * encoded, "%s: %llu bytes on the wire of %llu encoded", codec,
          (unsigned long long)wire, (unsigned long long)encoded);
    uint64_t messages = others * STEPS;
    CHECK(messages * least <= wire && wire <= messages * most,
          "%s: %.1f bytes a message of %d floats, by its format %llu to %llu", codec,
          (double)wire / (double)messages, N, (unsigned long long)least, (unsigned long long)most);
    double sent = 8.0 * (double)wire / ((double)messages * N);
    double bits = gw_codec_bits(s->mix.codec, N);
    if (bits > 0 && ranks > 1)
        CHECK(fabs(sent - bits) < 1e-9 * bits, "%s: %.4f bits an element, %.4f by the formula",
              codec, sent, bits);
    gw_session_close(s);
    gw_session_free(s);
}

int main(int argc, char **argv) {
    check_start(argc, argv);
    for (const gw_entry *const *c = gw_codecs.entries; *c; c++)
        bytes_are_the_encodings((*c)->name, 0, UINT32_MAX);
    for (size_t i = 0; i < sizeof stated / sizeof *stated; i++) {
        uint64_t least = stated[i].least, most = stated[i].most;
        bytes_are_the_encodings(stated[i].spec, least, most ? most : least);
    }
    MPI_Finalize();
    return 0;
}
