/* The optimizer compared with its formula, element by element in double, over several steps. */
#include "nn/optimizer.h"

#include "base/mem.h"
#include "base/rng.h"

#include <math.h>
#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { N = 70001, STEPS = 4 };

typedef struct fixture {
    float *param, *grad;
    double *want, *velocity;
} fixture;

static void begin(fixture *f) {
    assert_int_equal(gw_alloc(&f->param, N, sizeof(float)), GW_OK);
    assert_int_equal(gw_alloc(&f->grad, N, sizeof(float)), GW_OK);
    assert_int_equal(gw_alloc(&f->want, N, sizeof(double)), GW_OK);
    assert_int_equal(gw_alloc(&f->velocity, N, sizeof(double)), GW_OK);
    for (int i = 0; i < N; i++)
        f->want[i] = (double)(f->param[i] = (float)gw_rng_normal(1, (uint64_t)i));
}

static void end(fixture *f) {
    free(f->param);
    free(f->grad);
    free(f->want);
    free(f->velocity);
}

static void new_gradient(fixture *f, int step) {
    for (int i = 0; i < N; i++)
        f->grad[i] = (float)gw_rng_normal(2 + (uint64_t)step, (uint64_t)i);
}

static void reference(fixture *f, gw_span s, double mu, double decay, double lr, double scale) {
    for (size_t i = s.off; i < gw_span_end(s); i++) {
        double g = scale * (double)f->grad[i] + decay * f->want[i];
        f->velocity[i] = mu * f->velocity[i] + g;
        f->want[i] -= lr * (mu > 0.0 ? f->velocity[i] : g);
    }
}

static void compare(const fixture *f) {
    for (int i = 0; i < N; i++)
        if (!(fabs((double)f->param[i] - f->want[i]) <= 1e-6 * (1.0 + fabs(f->want[i]))))
            fail_msg("element %d: %.9g, want %.9g", i, (double)f->param[i], f->want[i]);
}

static void check(double mu, double decay, int threads) {
    const gw_span spans[] = {{0, N}, {3, 40001}, {40004, N - 40004}, {17, 5}, {N, 0}};
    fixture f;
    gw_optimizer *o = NULL;
    omp_set_num_threads(threads);
    begin(&f);
    assert_int_equal(gw_optimizer_open(&o, N, mu, decay), GW_OK);
    for (int step = 0; step < STEPS; step++) {
        new_gradient(&f, step);
        for (int s = 0; s < 5; s++) {
            gw_optimizer_update(o, f.param, f.grad, spans[s], 0.1f, 0.25f);
            reference(&f, spans[s], mu, decay, 0.1, 0.25);
        }
    }
    compare(&f);
    gw_optimizer_close(o);
    end(&f);
    omp_set_num_threads(1);
}

static void test_rules(void **state) {
    (void)state;
    for (int threads = 1; threads <= 3; threads++) {
        check(0.0, 0.0, threads);
        check(0.0, 0.01, threads);
        check(0.9, 0.0, threads);
        check(0.5, 0.02, threads);
    }
}

static void test_refused(void **state) {
    (void)state;
    gw_optimizer *o = NULL;
    const double bad[] = {-0.1, 1.0, NAN, INFINITY};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(gw_optimizer_open(&o, 4, bad[i], 0.0), GW_ERR_USAGE);
        assert_int_equal(gw_optimizer_open(&o, 4, 0.0, bad[i]), GW_ERR_USAGE);
    }
    gw_optimizer_close(NULL);
}

/* An update by a list equals that by a gradient that is zero elsewhere, bit for bit. */
static void test_listed(void **state) {
    (void)state;
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
    assert_int_equal(gw_optimizer_open(&o, N, 0, 0), GW_OK);
    assert_int_equal(gw_optimizer_open(&momentum, N, 0.9, 0), GW_OK);
    assert_int_equal(gw_optimizer_open(&decay, N, 0, 0.1), GW_OK);
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
    (void)state;
    char dir[] = "/tmp/gw_test_optimizer.XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/opt", dir);
    fixture a, b;
    gw_optimizer *through = NULL, *resumed = NULL, *plain = NULL;
    begin(&a);
    begin(&b);
    assert_int_equal(gw_optimizer_open(&through, N, 0.9, 0.0), GW_OK);
    assert_int_equal(gw_optimizer_open(&resumed, N, 0.9, 0.0), GW_OK);
    assert_int_equal(gw_optimizer_open(&plain, N, 0.0, 0.0), GW_OK);
    new_gradient(&a, 0);
    gw_optimizer_update(through, a.param, a.grad, (gw_span){0, N}, 0.1f, 1.0f);
    assert_int_equal(save(through, dir), GW_OK);
    assert_int_equal(load(resumed, path), GW_OK);
    assert_int_equal(load(plain, path), GW_ERR_INPUT); /* has no velocity to put it in */
    memcpy(b.param, a.param, N * sizeof *a.param);
    gw_optimizer_update(through, a.param, a.grad, (gw_span){0, N}, 0.1f, 1.0f);
    gw_optimizer_update(resumed, b.param, a.grad, (gw_span){0, N}, 0.1f, 1.0f);
    assert_memory_equal(a.param, b.param, N * sizeof *a.param);
    assert_int_equal(save(plain, dir), GW_OK);
    assert_int_equal(load(plain, path), GW_OK);
    assert_int_equal(load(resumed, path), GW_ERR_INPUT);
    gw_optimizer_close(through);
    gw_optimizer_close(resumed);
    gw_optimizer_close(plain);
    end(&a);
    end(&b);
    unlink(path);
    rmdir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_listed),
        cmocka_unit_test(test_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
