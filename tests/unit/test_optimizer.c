/* Optimizers compared with their formulas, element by element in double, over several steps, one of
 * them loaded by its path; and all of the tree against what the seam promises of them. */
#include "optim/optimizer.h"

#include "../specs.h"
#include "folder.h"

#include "base/mem.h"
#include "base/rng.h"
#include "nn/gemm.h"

#include <float.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 70001, STEPS = 4 };

typedef struct fixture {
    float *param, *grad;
    double *want, *velocity, *square;
} fixture;

static void begin(fixture *f) {
    assert_int_equal(gw_alloc(&f->param, N, sizeof(float)), GW_OK);
    assert_int_equal(gw_alloc(&f->grad, N, sizeof(float)), GW_OK);
    assert_int_equal(gw_alloc(&f->want, N, sizeof(double)), GW_OK);
    assert_int_equal(gw_alloc(&f->velocity, N, sizeof(double)), GW_OK);
    assert_int_equal(gw_alloc(&f->square, N, sizeof(double)), GW_OK);
    for (int i = 0; i < N; i++)
        f->want[i] = (double)(f->param[i] = (float)gw_rng_normal(1, (uint64_t)i));
}

static void end(fixture *f) {
    free(f->param);
    free(f->grad);
    free(f->want);
    free(f->velocity);
    free(f->square);
}

static void new_gradient(fixture *f, int step) {
    for (int i = 0; i < N; i++)
        f->grad[i] = (float)gw_rng_normal(2 + (uint64_t)step, (uint64_t)i);
}

static void reference(fixture *f, gw_span s, double mu, double decay, bool nesterov, double lr,
                      double scale) {
    for (size_t i = s.off; i < gw_span_end(s); i++) {
        double g = scale * (double)f->grad[i] + decay * f->want[i];
        f->velocity[i] = mu * f->velocity[i] + g;
        f->want[i] -= lr * (nesterov ? g + mu * f->velocity[i] : mu > 0.0 ? f->velocity[i] : g);
    }
}

static void compare(const fixture *f) {
    for (int i = 0; i < N; i++)
        if (!(fabs((double)f->param[i] - f->want[i]) <= 1e-6 * (1.0 + fabs(f->want[i]))))
            fail_msg("element %d: %.9g, want %.9g", i, (double)f->param[i], f->want[i]);
}

static void check(double mu, double decay, bool nesterov, int threads) {
    const gw_span spans[] = {{0, N}, {3, 40001}, {40004, N - 40004}, {17, 5}, {N, 0}};
    char spec[64];
    fixture f;
    gw_optimizer *o = NULL;
    omp_set_num_threads(threads);
    begin(&f);
    snprintf(spec, sizeof spec, "sgd:momentum=%g,weight-decay=%g,nesterov=%d", mu, decay, nesterov);
    assert_int_equal(open_optimizer(&o, spec, N), GW_OK);
    for (int step = 0; step < STEPS; step++) {
        new_gradient(&f, step);
        for (int s = 0; s < 5; s++) {
            gw_optimizer_update(o, f.param, f.grad, spans[s], 0.1f, 0.25f);
            reference(&f, spans[s], mu, decay, nesterov, 0.1, 0.25);
        }
    }
    compare(&f);
    gw_optimizer_close(o);
    end(&f);
    omp_set_num_threads(1);
}

static void test_rules(void **state) {
    for (int threads = 1; threads <= 3; threads++) {
        check(0.0, 0.0, false, threads);
        check(0.0, 0.01, false, threads);
        check(0.9, 0.0, false, threads);
        check(0.5, 0.02, false, threads);
        check(0.5, 0.02, true, threads);
    }
}

static void test_refused(void **state) {
    gw_optimizer *o = NULL;
    const char *const bad[] = {"-0.1", "1.0", "nan", "inf"};
    const char *const options[] = {"momentum", "weight-decay", "mass"};
    char spec[64];
    for (int i = 0; i < 12; i++) {
        snprintf(spec, sizeof spec, "sgd:%s=%s", options[i / 4], bad[i % 4]);
        assert_int_equal(open_optimizer(&o, spec, 4), GW_ERR_USAGE);
        assert_null(o);
    }
    assert_int_equal(open_optimizer(&o, "sgd:nesterov=1", 4), GW_ERR_USAGE);
    assert_int_equal(open_optimizer(&o, "muon", 4), GW_ERR_UNSUPPORTED); /* without products */
    assert_null(o);
    gw_optimizer_close(NULL);
}

static void reference_adam(fixture *f, int step, double lr, double scale) {
    for (size_t i = 0; i < N; i++) {
        double g = scale * (double)f->grad[i];
        f->velocity[i] = 0.8 * f->velocity[i] + 0.2 * g;
        f->square[i] = 0.99 * f->square[i] + 0.01 * g * g;
        double mean = f->velocity[i] / (1 - pow(0.8, step)),
               square = f->square[i] / (1 - pow(0.99, step));
        f->want[i] -= lr * mean / (sqrt(square) + 1e-8);
    }
}

/* Each update in three calls, of which threads share the larger ones; one that is begun anew, and
 * one that goes on from another's state, come to the same. */
static void test_adam(void **state) {
    const gw_span parts[] = {{0, 5}, {5, 40000}, {40005, N - 40005}};
    fixture f;
    gw_optimizer *o = NULL, *other = NULL;
    begin(&f);
    omp_set_num_threads(3);
    assert_int_equal(open_optimizer(&o, ADAM ":beta1=0.8,beta2=0.99", N), GW_OK);
    assert_int_equal(gw_optimizer_like(&other, o, N), GW_OK);
    assert_int_equal(o->state.count, 2);
    assert_string_equal(o->names[1], "square");
    assert_false(gw_optimizer_lists(o) || gw_optimizer_whole(o));
    for (int step = 1; step <= STEPS; step++) {
        new_gradient(&f, step);
        gw_optimizer_begin(o);
        for (int p = 0; p < 3; p++)
            gw_optimizer_update(o, f.param, f.grad, parts[p], 0.1f, 0.25f);
        reference_adam(&f, step, 0.1, 0.25);
        compare(&f);
    }
    assert_int_equal(o->updates, STEPS);
    float *x = o->state.x, *y = other->state.x;
    memcpy(y, x, 2 * N * sizeof *y);
    other->updates = STEPS;
    gw_optimizer_begin(o);
    gw_optimizer_begin(other);
    gw_optimizer_update(o, f.param, f.grad, (gw_span){0, N}, 0.1f, 1);
    gw_optimizer_update(other, f.param, f.grad, (gw_span){0, N}, 0.1f, 1);
    assert_memory_equal(x, y, 2 * N * sizeof *x);
    omp_set_num_threads(1);
    gw_optimizer_close(other);
    gw_optimizer_close(o);
    end(&f);
}

static const gw_tensor tensors[] = {{{0, 60000}, 0, 300, 200},
                                    {{60000, 200}, 0, 1, 200},
                                    {{60200, 0}, 1, 0, 0},
                                    {{60200, 1800}, 1, 30, 60},
                                    {{62000, N - 62000}, 2, 1, N - 62000}};
static const gw_optimizer_model model = {
    .tensors = tensors, .n_tensors = 5, .head = 2, .inputs_rows = true, .product = gw_gemm};

static gw_optimizer *open_rule(const char *spec) {
    gw_optimizer_setup setup = {.n = N, .model = model};
    gw_optimizer *o = NULL;
    assert_int_equal(keep_spec(&setup.spec, spec, GW_SPEC_ONE), GW_OK);
    assert_int_equal(gw_optimizer_open(&o, &setup), GW_OK);
    return o;
}

/* Whatever the rule, an update in parts on one thread and as a whole on three come to the same
 * bits; one that goes on from another's state, too; and at rate 0 nothing moves. */
static void check_promises(const char *spec) {
    fixture a, b;
    gw_optimizer *other = NULL;
    begin(&a);
    begin(&b);
    gw_optimizer *o = open_rule(spec);
    assert_int_equal(gw_optimizer_like(&other, o, N), GW_OK);
    for (int step = 0; step < STEPS; step++) {
        new_gradient(&a, step);
        omp_set_num_threads(3);
        gw_optimizer_begin(o);
        gw_optimizer_update(o, a.param, a.grad, (gw_span){0, N}, 0.01f, 0.25f);
        omp_set_num_threads(o->ops->traits & GW_OPTIMIZER_PRODUCTS ? 3 : 1); /* or tiles differ */
        if (step == 0) {
            memcpy(b.param, a.param, N * sizeof *a.param);
            memcpy(other->state.x, o->state.x, (size_t)o->state.count * N * sizeof(float));
            other->updates = 1;
            continue;
        }
        gw_optimizer_begin(other);
        for (gw_span left = {0, N}; left.n > 0;) {
            gw_span piece = {left.off, gw_optimizer_piece(other, left, 60000)};
            gw_optimizer_update_here(other, b.param + left.off, a.grad + left.off, piece, 0.01f,
                                     0.25f);
            left = (gw_span){gw_span_end(piece), left.n - piece.n};
        }
        assert_memory_equal(a.param, b.param, N * sizeof *a.param);
    }
    omp_set_num_threads(1);
    gw_optimizer_update(o, a.param, a.grad, (gw_span){0, N}, 0, 1);
    int moved = 0;
    for (int i = 0; i < N; i++) {
        assert_true(a.param[i] == b.param[i]);
        moved += isfinite(a.param[i]) && (double)a.param[i] != a.want[i];
    }
    assert_true(moved > N / 2); /* a small step may be none */
    gw_optimizer_close(other);
    gw_optimizer_close(o);
    end(&a);
    end(&b);
}

static void test_promises(void **state) {
    for (const gw_entry *const *e = gw_optimizers.entries; *e; e++)
        check_promises((*e)->name);
    check_promises("sgd:momentum=0.9,nesterov=1,weight-decay=0.1");
    check_promises("lars:weight-decay=0.1");
    check_promises("lion:weight-decay=0.1");
    check_promises("muon:weight-decay=0.1,rest=0.5");
}

/* A gradient that is not a number shows in what it moved. */
static void test_nan(void **state) {
    for (const gw_entry *const *e = gw_optimizers.entries; *e; e++) {
        fixture f;
        begin(&f);
        new_gradient(&f, 1);
        f.grad[5] = NAN;
        gw_optimizer *o = open_rule((*e)->name);
        gw_optimizer_update(o, f.param, f.grad, (gw_span){0, N}, 0.01f, 1);
        assert_true(isnan(f.param[5]));
        gw_optimizer_close(o);
        end(&f);
    }
}

/* The greatest gradient that a rule takes leaves nothing behind that is not finite. */
static void test_most(void **state) {
    for (const gw_entry *const *e = gw_optimizers.entries; *e; e++) {
        fixture f;
        begin(&f);
        gw_optimizer *o = open_rule((*e)->name);
        float most = o->ops->most;
        for (int i = 0; i < N; i++)
            f.grad[i] = most > 0 ? most : FLT_MAX;
        gw_optimizer_update(o, f.param, f.grad, (gw_span){0, N}, 0.01f, 1);
        for (int i = 0; i < o->state.count * N; i++)
            assert_true(isfinite(o->state.x[i]));
        gw_optimizer_close(o);
        end(&f);
    }
}

/* A rule of whole tensors gets one after another, however large, and those of a span alone. */
static void test_tensors(void **state) {
    fixture f;
    begin(&f);
    new_gradient(&f, 1);
    gw_optimizer *o = open_rule("lars:trust=0.02");
    assert_true(gw_optimizer_whole(o));
    assert_int_equal(gw_optimizer_piece(o, (gw_span){0, N}, 7), 60000);
    assert_int_equal(gw_optimizer_piece(o, (gw_span){60000, N - 60000}, 7), 200);
    assert_int_equal(gw_optimizer_piece(o, (gw_span){62000, N - 62000}, 7), N - 62000);
    double moved = 0, by = 0;
    for (int i = 0; i < 60000; i++) {
        moved += f.want[i] * f.want[i];
        by += 0.25 * 0.25 * (double)f.grad[i] * (double)f.grad[i];
    }
    omp_set_num_threads(3);
    gw_optimizer_update(o, f.param, f.grad, (gw_span){0, 60200}, 0.1f, 0.25f);
    omp_set_num_threads(1);
    for (int i = 0; i < 60200; i++)
        f.want[i] -= 0.1 * 0.25 * (double)f.grad[i] * (i < 60000 ? 0.02 * sqrt(moved / by) : 1);
    compare(&f);
    gw_optimizer_close(o);
    end(&f);
}

static const gw_opt command_opts[] = {
    {"momentum", GW_OPT_REAL, "0", 0, 1}, {"weight-decay", GW_OPT_REAL, "0", 0, 1}, {0}};

static gw_err open_by(gw_optimizer **o, const char *spec, const char *momentum, bool corrected) {
    gw_optimizer_setup setup = {.n = 4, .corrected = corrected};
    gw_args *args = NULL;
    assert_int_equal(gw_args_new(&args, command_opts), GW_OK);
    if (momentum)
        assert_int_equal(gw_args_set(args, "test", "momentum", momentum), GW_OK);
    assert_int_equal(gw_args_set(args, "test", "weight-decay", "0"), GW_OK);
    setup.command = args;
    assert_int_equal(keep_spec(&setup.spec, spec, GW_SPEC_ONE), GW_OK);
    gw_err e = gw_optimizer_open(o, &setup);
    gw_args_free(args);
    return e;
}

/* --momentum of the command line is sgd's, unless the exchange applies it. */
static void test_command(void **state) {
    gw_optimizer *o = NULL;
    for (int corrected = 0; corrected < 2; corrected++) {
        assert_int_equal(open_by(&o, "sgd", "0.5", corrected), GW_OK);
        assert_string_equal(gw_optimizer_kernel(o), corrected ? "plain" : "momentum");
        gw_optimizer_close(o);
        o = NULL;
        assert_int_equal(open_by(&o, "lars", "0.5", corrected), GW_OK);
        assert_true(gw_args_real(o->args, "momentum") == (corrected ? 0 : 0.5));
        gw_optimizer_close(o);
        o = NULL;
        assert_fails(open_by(&o, "sgd:momentum=0.5", "0.5", corrected), GW_ERR_USAGE,
                     "--momentum and --optimizer sgd:momentum=0.5");
        assert_fails(open_by(&o, ADAM, "0.5", corrected), GW_ERR_USAGE,
                     "--momentum: --optimizer adam has no such option");
        assert_null(o);
    }
}

/* An update by a list equals that by a gradient that is zero elsewhere, bit for bit. */
static void test_listed(void **state) {
    enum { STRIDE = 3, LISTED = (N + STRIDE - 1) / STRIDE };
    static uint32_t at[LISTED];
    static float value[LISTED];
    fixture a, b;
    gw_optimizer *o = NULL, *momentum = NULL, *decay = NULL;
    begin(&a);
    begin(&b);
    new_gradient(&a, 0);
    for (size_t i = 0; i < N; i++) {
        b.param[i] = a.param[i];
        a.grad[i] = i % STRIDE ? 0 : a.grad[i];
        at[i / STRIDE] = (uint32_t)(i / STRIDE * STRIDE);
        value[i / STRIDE] = a.grad[i / STRIDE * STRIDE];
    }
    assert_int_equal(open_optimizer(&o, "sgd", N), GW_OK);
    assert_int_equal(open_optimizer(&momentum, "sgd:momentum=0.9", N), GW_OK);
    assert_int_equal(open_optimizer(&decay, "sgd:weight-decay=0.1", N), GW_OK);
    gw_optimizer_update(o, a.param, a.grad, (gw_span){0, N}, 0.1f, 0.5f);
    gw_optimizer_update_at(o, b.param, at, value, LISTED, 0.1f, 0.5f);
    assert_memory_equal(a.param, b.param, N * sizeof *a.param);
    assert_true(gw_optimizer_lists(o));
    assert_false(gw_optimizer_lists(momentum)); /* these also move where the gradient is zero */
    assert_false(gw_optimizer_lists(decay));
    gw_optimizer_close(o);
    gw_optimizer_close(momentum);
    gw_optimizer_close(decay);
    end(&a);
    end(&b);
}

static gw_err save(gw_optimizer *o, const char *dir) {
    gw_io *io = NULL;
    GW_TRY(gw_io_save(&io, dir, "opt", "GWTEST01", 1));
    assert_int_equal(gw_optimizer_state(o, io), GW_OK);
    return gw_io_close(io);
}

static gw_err load(gw_optimizer *o, const char *path) {
    gw_io *io = NULL;
    GW_TRY(gw_io_load(&io, path, "GWTEST01", 1, 1 << 20));
    gw_err e = gw_optimizer_state(o, io);
    if (e == GW_OK)
        return gw_io_close(io);
    gw_io_abandon(io);
    return e;
}

/* A run that stops and resumes ends with the same bits as one that did not stop. */
static void test_state(void **state) {
    const char *path = in_folder("opt");
    fixture a, b;
    gw_optimizer *through = NULL, *resumed = NULL, *plain = NULL;
    begin(&a);
    begin(&b);
    assert_int_equal(open_optimizer(&through, "sgd:momentum=0.9", N), GW_OK);
    assert_int_equal(open_optimizer(&resumed, "sgd:momentum=0.9", N), GW_OK);
    assert_int_equal(open_optimizer(&plain, "sgd", N), GW_OK);
    new_gradient(&a, 0);
    gw_optimizer_update(through, a.param, a.grad, (gw_span){0, N}, 0.1f, 1.0f);
    assert_int_equal(save(through, folder), GW_OK);
    assert_int_equal(load(resumed, path), GW_OK);
    assert_int_equal(load(plain, path), GW_ERR_INPUT); /* has no velocity to put it in */
    memcpy(b.param, a.param, N * sizeof *a.param);
    gw_optimizer_update(through, a.param, a.grad, (gw_span){0, N}, 0.1f, 1.0f);
    gw_optimizer_update(resumed, b.param, a.grad, (gw_span){0, N}, 0.1f, 1.0f);
    assert_memory_equal(a.param, b.param, N * sizeof *a.param);
    assert_int_equal(save(plain, folder), GW_OK);
    assert_int_equal(load(plain, path), GW_OK);
    assert_int_equal(load(resumed, path), GW_ERR_INPUT);
    gw_optimizer_close(through);
    gw_optimizer_close(resumed);
    gw_optimizer_close(plain);
    end(&a);
    end(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rules),   cmocka_unit_test(test_refused),
        cmocka_unit_test(test_listed),  cmocka_unit_test(test_adam),
        cmocka_unit_test(test_tensors), cmocka_unit_test(test_command),
        cmocka_unit_test(test_state),   cmocka_unit_test(test_promises),
        cmocka_unit_test(test_nan),     cmocka_unit_test(test_most),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
