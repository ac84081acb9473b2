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

gw_forecast gw_forecast_exchange(const gw_way *way, size_t n, bool link) {
    exchange x = forecast_exchange(way, n, link);
    return (gw_forecast){.step_s = x.both_s,
                         .codec_s = x.codec_s,
                         .exposed_s = x.both_s - x.codec_s,
                         .sent = (double)n * (way->bytes * way->sent + way->agreed)};
}

/* ---- a step ---- */

static gw_forecast forecast_overlapped(const gw_shape *s, const gw_way *way) {
    gw_walk_part part[GW_FORECAST_PARTS];
    gw_forecast sum = {0};
    for (int i = 0; i < s->n_parts; i++) {
        exchange x = forecast_exchange(way, s->parts[i].n, s->link);
        part[i] = (gw_walk_part){.span = s->parts[i], .before_s = x.codec_s};
        if (s->link) {
            part[i].wire_s = fmax(0, x.messages_s - x.latency_s);
            part[i].latency_s = x.latency_s;
        } else {
            part[i].before_s += x.messages_s;
            sum.exposed_s += x.messages_s;
        }
        sum.codec_s += x.codec_s;
        sum.sent += gw_forecast_exchange(way, s->parts[i].n, s->link).sent;
    }
    gw_walk walk = {.local = s->local,
                    .layers = s->layers,
                    .n_layers = s->n_layers,
                    .parts = part,
                    .n_parts = s->n_parts,
                    .lazy = s->lazy};
    sum.exposed_s += gw_walk_step(&walk).waited_s;
    return sum;
}

gw_forecast gw_forecast_step(const gw_shape *s, const gw_way *way) {
    gw_forecast f = {0};
    if (s->overlapped) {
        f = forecast_overlapped(s, way);
    } else {
        for (int i = 0; i < s->n_parts; i++) {
            gw_forecast x = gw_forecast_exchange(way, s->parts[i].n, s->link);
            f.codec_s += x.codec_s;
            f.exposed_s += x.exposed_s;
            f.sent += x.sent;
        }
    }
    f.local_s = gw_local_sum(&s->local);
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
