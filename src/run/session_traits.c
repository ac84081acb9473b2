/* Answers about a session that its strategy, options and codecs give without an exchange. */
#include "run/session.h"

int gw_session_thread_level(const gw_session *s) {
    return gw_strategy_thread_level(&s->strategy);
}

int gw_session_helpers(const gw_session *s) {
    const gw_strategy_ops *ops = s->strategy.ops;
    return ops->helpers ? ops->helpers(s->strategy.args) : 0;
}

int gw_session_servers(const gw_session *s) {
    const gw_strategy_ops *ops = s->strategy.ops;
    return ops->servers ? ops->servers(s->strategy.args) : 0;
}

bool gw_session_progresses(const gw_session *s) {
    const gw_strategy_ops *ops = s->strategy.ops;
    return ops->progress && (!ops->polls || ops->polls(s->strategy.args));
}

gw_repeat gw_session_repeat(const gw_session *s, int64_t from) {
    const gw_strategy_ops *ops = s->strategy.ops;
    gw_repeat repeat = gw_repeat_of(ops->period ? ops->period(s->self, from) : 1);
    if (gw_mix_warms(&s->mix))
        repeat.all = 0;
    return repeat;
}

bool gw_session_agrees(const gw_session *s, int steps) {
    const gw_strategy_ops *ops = s->strategy.ops;
    return ops->traits & GW_STRATEGY_SYNCHRONOUS || (ops->agrees && ops->agrees(s->self, steps));
}
