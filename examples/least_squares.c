/* Least squares over MPI ranks: each draws its own samples; gradients travel in some bits a number and
 * each rank updates a shard of the weights. mpiexec -n 2 least_squares */
#include <gradwire.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 100, SAMPLES = 32 };

static int check(int e) {
    if (e < 0) {
        fprintf(stderr, "least_squares: %s\n", gradwire_error());
        exit(1);
    }
    return e;
}

int main(void) {
    static float w[N], grad[N], x[N];
    const char *words = "--comm sharded --compress qsgd";
    float *grads[] = {grad};
    int rank, ranks, tensor;
    size_t from, n;
    double worst = 0;
    gradwire *g;
    check(gradwire_start(words, &rank, &ranks));
    check(gradwire_new(&g, -1, words));
    tensor = check(gradwire_tensor(g, "w", 0, N, 0, w));
    check(gradwire_open(g));
    srand((unsigned)rank + 1);
    for (int step = 0; step < 200; step++) {
        double loss = 0;
        check(gradwire_begin(g, SAMPLES, (long)SAMPLES * ranks));
        check(gradwire_phase(g, GRADWIRE_BACKWARD));
        for (int i = 0; i < N; i++) {
            grad[i] = 0;
        }
        for (int s = 0; s < SAMPLES; s++) {
            float error = 0;
            for (int i = 0; i < N; i++) {
                x[i] = (float)rand() / (float)RAND_MAX - 0.5F;
                error += x[i] * (w[i] - 1); /* every weight should become 1 */
            }
            loss += error * error / SAMPLES;
            for (int i = 0; i < N; i++) {
                grad[i] += 2 * error * x[i] / SAMPLES;
            }
        }
        check(gradwire_ready(g, 1, &tensor, grads));
        int update = check(gradwire_finish(g, GRADWIRE_ALL));
        check(gradwire_phase(g, GRADWIRE_UPDATE));
        for (int i = 0, t; update && check(gradwire_owned(g, i, &t, &from, &n)); i++) {
            for (size_t k = from; k < from + n; k++) {
                w[k] -= 0.3F * grad[k];
            }
        }
        check(gradwire_updated(g, GRADWIRE_ALL));
        check(gradwire_end(g, loss));
    }
    for (int i = 0; i < N; i++) {
        worst = fmax(worst, fabs(w[i] - 1));
    }
    if (rank == 0) {
        printf("%d ranks: weights off by at most %.6f\n", ranks, worst);
    }
    return check(gradwire_close(g));
}
