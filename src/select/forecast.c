#include "select/forecast.h"

#include <math.h>

/* ---- one exchange ---- */

/* Its message part, its coding part, and what both take together. */
typedef struct exchange {
    double messages_s, codec_s, both_s, latency_s;
} exchange;

static exchange forecast_exchange(const gw_way *way, size_t n, bool link) {
    exchange x = {0};
    if (n == 0)
        return x;
    double floats = (double)n;
    for (int k = 0; k < GW_CODINGS; k++)
        x.codec_s += floats * way->work[k] * way->price[k];
    x.latency_s = gw_curve_alpha(&way->messages);
    x.messages_s = gw_curve_at(&way->messages, floats * way->bytes);
    if (way->agreed > 0)
        x.messages_s += gw_curve_at(&way->exact, floats * way->agreed);
    double chunks = floats * way->chunks;
    if (!link || chunks <= 1) {
        x.both_s = x.messages_s + x.codec_s;
        return x;
    }
    x.both_s = fmax(x.messages_s, x.codec_s) + fmin(x.messages_s, x.codec_s) / chunks;
    return x;
}

static double forecast_sent(const gw_way *way, size_t n) {
    return (double)n * (way->bytes * way->sent + way->agreed);
}

gw_forecast gw_forecast_exchange(const gw_way *way, size_t n, bool link) {
    exchange x = forecast_exchange(way, n, link);
    return (gw_forecast){.step_s = x.both_s,
                         .codec_s = x.codec_s,
                         .exposed_s = x.both_s - x.codec_s,
                         .sent = forecast_sent(way, n)};
}

/* ---- a step ---- */

gw_forecast gw_forecast_step(gw_shape *s, const gw_way *way) {
    gw_walk *w = &s->walk;
    gw_forecast f = {.local_s = gw_local_sum(&w->local)};
    for (int i = 0; i < w->n_parts; i++) {
        gw_span span = w->part[i].span;
        exchange x = forecast_exchange(way, span.n, s->link);
        w->part[i] = (gw_walk_part){.span = span, .before_s = x.codec_s};
        f.codec_s += x.codec_s;
        f.sent += forecast_sent(way, span.n);
        if (!s->overlapped) {
            f.exposed_s += x.both_s - x.codec_s;
        } else if (s->link) {
            w->part[i].wire_s = fmax(0, x.messages_s - x.latency_s);
            w->part[i].latency_s = x.latency_s;
        } else {
            w->part[i].before_s += x.messages_s;
            f.exposed_s += x.messages_s;
        }
    }
    if (s->overlapped)
        f.exposed_s += gw_walk_step(w).waited_s;
    f.step_s = f.local_s + f.codec_s + f.exposed_s;
    return f;
}

int gw_forecast_choose(const double *step_s, int n, int plain, double margin) {
    int best = -1;
    for (int i = 0; i < n; i++)
        if (!isnan(step_s[i]) && (best < 0 || step_s[i] < step_s[best]))
            best = i;
    if (plain < 0 || isnan(step_s[plain]))
        return best;
    return step_s[best] < (1 - margin) * step_s[plain] ? best : plain;
}
