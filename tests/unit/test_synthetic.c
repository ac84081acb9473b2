/* Synthetic clusters: the bytes depend on the options alone, the moments are as promised, and a
 * linear model can tell the classes apart. */
#include "data/raw.h"

#include "unit.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

static const char *spec_of(const char *options) {
    static char text[256];
    snprintf(text, sizeof text, "synthetic:%s", options ? options : "");
    return text;
}

static void make(gw_raw *raw, const char *options) {
    assert_ok(gw_synthetic_make(raw, spec_of(options), false));
}

static void same(const gw_raw *a, const gw_raw *b) {
    char ha[32], hb[32];
    gw_raw_hash(a, ha);
    gw_raw_hash(b, hb);
    assert_string_equal(ha, hb);
}

static void depends_on_options_alone(void **state) {
    gw_raw a, b;
    const char *spec = "samples=500,features=40,classes=4,clusters=2,seed=7";
    int threads = omp_get_max_threads();
    omp_set_num_threads(1);
    make(&a, spec);
    omp_set_num_threads(3);
    make(&b, spec);
    omp_set_num_threads(threads);
    same(&a, &b);
    gw_raw_free(&b);
    make(&b, strchr(a.source, ':') + 1); /* the source repeats the run */
    same(&a, &b);
    assert_string_equal(a.source, b.source);
    gw_raw_free(&b);
    make(&b, "samples=500,features=40,classes=4,clusters=2,seed=8");
    assert_memory_not_equal(a.train.images, b.train.images, 400 * 40);
    gw_raw_free(&a);
    gw_raw_free(&b);
}

static void has_the_shape_asked_for(void **state) {
    gw_raw r;
    make(&r, "samples=1000,features=30,classes=5,test=0.25,flip=0");
    assert_int_equal(r.train.n, 750);
    assert_int_equal(r.test.n, 250);
    assert_int_equal(r.rows, 1);
    assert_int_equal(r.cols, 30);
    assert_int_equal(r.classes, 5);
    int count[5] = {0};
    for (uint32_t i = 0; i < 750; i++)
        count[r.train.labels[i]]++;
    for (uint32_t i = 0; i < 250; i++)
        count[r.test.labels[i]]++;
    for (int c = 0; c < 5; c++)
        assert_int_equal(count[c], 200); /* equal classes, exactly */
    gw_raw_free(&r);
    make(&r, "");
    assert_int_equal(r.train.n + r.test.n, 12000);
    assert_int_equal(r.cols, 784);
    assert_int_equal(r.classes, 10);
    gw_raw_free(&r);
}

/* Labels differ from the unflipped ones at the rate flip * (1 - 1/classes). */
static void flips_labels_at_the_rate(void **state) {
    gw_raw a, b;
    make(&a, "samples=20000,features=4,classes=4,flip=0");
    make(&b, "samples=20000,features=4,classes=4,flip=0.2");
    int differ = 0;
    for (uint32_t i = 0; i < a.train.n; i++)
        differ += a.train.labels[i] != b.train.labels[i];
    assert_memory_equal(a.train.images, b.train.images, a.train.n * 4);
    double rate = (double)differ / a.train.n; /* 0.15, deviation 0.0028 */
    assert_true(fabs(rate - 0.15) < 0.012);
    gw_raw_free(&a);
    gw_raw_free(&b);
}

/* Noise features are standard normal over -3..3: mean 127.5, deviation 42.5 less what is cut off,
 * excess kurtosis near 0, and no correlation with their neighbour. */
static void noise_is_normal(void **state) {
    enum { N = 20000, F = 40 };
    gw_raw r;
    make(&r, "samples=24000,features=40,classes=2,informative=1,redundant=0,separation=0,flip=0");
    assert_int_equal(r.train.n, N);
    for (int j = 0; j < F; j++) {
        double mean = 0, m2 = 0, m4 = 0, cross = 0;
        for (int i = 0; i < N; i++)
            mean += r.train.images[i * F + j];
        mean /= N;
        for (int i = 0; i < N; i++) {
            double d = r.train.images[i * F + j] - mean;
            m2 += d * d;
            m4 += d * d * d * d;
            cross += d * (r.train.images[i * F + (j + 1) % F] - 127.5);
        }
        m2 /= N;
        m4 /= N;
        assert_true(fabs(mean - 127.5) < 1.6); /* five deviations */
        assert_true(fabs(sqrt(m2) - 42.2) < 1.2);
        assert_true(fabs(m4 / (m2 * m2) - 2.83) < 0.2);
        assert_true(fabs(cross / N / m2) < 0.036);
    }
    gw_raw_free(&r);
}

/* Softmax regression by plain SGD; returns the test accuracy after one epoch. */
static double fit(const gw_raw *r) {
    enum { MOST = 16 };
    int f = r->cols, c = r->classes;
    float *w = calloc((size_t)c * (size_t)(f + 1), sizeof *w), z[MOST];
    assert_non_null(w);
    int right = 0;
    for (uint32_t i = 0; i < r->train.n + r->test.n; i++) {
        bool learn = i < r->train.n;
        const gw_raw_part *p = learn ? &r->train : &r->test;
        uint32_t at = learn ? i : i - r->train.n;
        const uint8_t *x = p->images + at * (size_t)f;
        float sum = 0;
        int best = 0;
        for (int k = 0; k < c; k++) {
            float *row = w + k * (f + 1), s = row[f];
            for (int j = 0; j < f; j++)
                s += row[j] * ((float)x[j] - 127.5f);
            z[k] = s;
            if (z[k] > z[best])
                best = k;
        }
        right += !learn && best == p->labels[at];
        float top = z[best];
        for (int k = 0; k < c; k++)
            sum += z[k] = expf(z[k] - top);
        for (int k = 0; learn && k < c; k++) {
            float g = 1e-6f * (z[k] / sum - (float)(k == p->labels[at])), *row = w + k * (f + 1);
            for (int j = 0; j < f; j++)
                row[j] -= g * ((float)x[j] - 127.5f);
            row[f] -= g;
        }
    }
    free(w);
    return (double)right / r->test.n;
}

static void classes_can_be_told_apart(void **state) {
    gw_raw r;
    make(&r, NULL);
    double accuracy = fit(&r);
    gw_raw_free(&r);
    assert_true(accuracy > 0.9);
    make(&r, "separation=0,samples=3000"); /* nothing to learn: chance, 0.1 */
    accuracy = fit(&r);
    gw_raw_free(&r);
    assert_true(accuracy < 0.3);
}

static void refuse(const char *spec, const char *word) {
    gw_raw r;
    assert_int_equal(gw_synthetic_make(&r, spec_of(spec), false), GW_ERR_USAGE);
    assert_message(word);
    assert_null(r.train.images);
    assert_fails(gw_synthetic_make(&r, spec_of(spec), true), GW_ERR_USAGE, word);
}

static void refuses_what_cannot_be(void **state) {
    refuse("sample=5", "did you mean 'samples'");
    refuse("samples=1", "samples=1");
    refuse("classes=1", "from 2 to 65535");
    refuse("classes=65536", "classes=65536");
    refuse("samples=4,test=0.1", "leaves 4 for training and 0 for testing");
    refuse("test=1", "leaves 0 for training");
    refuse("features=3,classes=10", "at least 4 are needed");
    refuse("features=100,informative=3,classes=5,clusters=2", "at least 4 are needed");
    refuse("features=20,informative=15,redundant=6", "more than features=20");
    refuse("features=20,informative=21", "more than features=20");
    refuse("flip=nan", "flip=nan");
    refuse("samples", "expected name=value");
}

/* The tightest fit: every vertex of the hypercube holds a cluster. */
static void fills_the_hypercube(void **state) {
    gw_raw r;
    make(&r, "samples=64,features=5,informative=5,classes=16,clusters=2,separation=100,flip=0");
    bool seen[32] = {false};
    for (uint32_t i = 0; i < r.train.n + r.test.n; i++) {
        const uint8_t *x =
            i < r.train.n ? r.train.images + i * 5 : r.test.images + (i - r.train.n) * 5;
        int code = 0;
        for (int j = 0; j < 5; j++)
            code |= (x[j] > 127) << j;
        seen[code] = true;
    }
    int vertices = 0;
    for (int v = 0; v < 32; v++)
        vertices += seen[v];
    assert_true(vertices >= 24); /* each class has two; a sample picks one at random */
    gw_raw_free(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(depends_on_options_alone),  cmocka_unit_test(has_the_shape_asked_for),
        cmocka_unit_test(flips_labels_at_the_rate),  cmocka_unit_test(noise_is_normal),
        cmocka_unit_test(classes_can_be_told_apart), cmocka_unit_test(refuses_what_cannot_be),
        cmocka_unit_test(fills_the_hypercube),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
