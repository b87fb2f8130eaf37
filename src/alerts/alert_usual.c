#include "alerts/alert_usual.h"

#include "base/limits.h"

#include <assert.h>
#include <math.h>

void alert_usual_take(struct alert_usual *usual, double value, uint64_t now_ms)
{
    assert(isfinite(value) && now_ms >= usual->at_ms);
    uint64_t since_ms = usual->at_ms ? now_ms - usual->at_ms : 1;
    if (since_ms > LIMIT_ALERT_GAP_MS)
        since_ms = LIMIT_ALERT_GAP_MS;
    usual->known_ms += since_ms;
    if (usual->known_ms > LIMIT_ALERT_USUAL_MS)
        usual->known_ms = LIMIT_ALERT_USUAL_MS;
    usual->value +=
        usual->known_ms ? (value - usual->value) * (double)since_ms / (double)usual->known_ms : 0;
    usual->at_ms = now_ms;
}

bool alert_usual_is_known(const struct alert_usual *usual)
{
    return usual->known_ms >= LIMIT_ALERT_USUAL_MIN_MS;
}
