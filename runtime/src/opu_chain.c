/* The post chain: the stages of a pass, and the orders that the graph of a machine allows. */
#include "opu_native.h"

static uint64_t order_of(const struct opu_native *e) {
  const uint32_t bits = OPU_ORDER_STAGES_A_REGISTER * OPU_ORDER_CODE_BITS;
  return (uint64_t)POST(ORDER) | (uint64_t)POST(ORDER_2) << bits |
         (uint64_t)POST(ORDER_3) << (2u * bits);
}

struct opu_chain opu_chain_of(const struct opu_native *e) {
  const uint64_t order = order_of(e);
  struct opu_chain c;
  memset(&c, 0, sizeof c);
  c.pool = OPU_ORDER_STAGES;
  c.writes = 1;
  for (; c.count < OPU_ORDER_STAGES; c.count++) {
    const uint32_t code = (uint32_t)(order >> (OPU_ORDER_CODE_BITS * c.count)) & (OPU_CODES - 1u);
    const uint32_t stage = e->machine.code_stage[code];
    if (code == 0u) break;
    c.codes[c.count] = code;
    c.first[c.count] = c.param_words;
    c.param_words += opu_param_words[stage];
    if (stage == OPU_STAGE_REQUANT) c.requant = 1;
    if (stage == OPU_STAGE_RESIDUAL) c.residual = 1;
    if (stage == OPU_STAGE_POOL) c.pool = c.count;
    if (stage == OPU_STAGE_NORM) {
      c.norm = 1;
      c.writes = c.writes && opu_norm_has_results(opu_own(e, code));
    }
  }
  return c;
}

int opu_has_order(const struct opu_native *e, const struct opu_chain *c) {
  const struct opu_machine_config *m = &e->machine;
  uint32_t at = OPU_CODE_START, used = 0, i;
  if (c->count < OPU_ORDER_STAGES && order_of(e) >> (OPU_ORDER_CODE_BITS * c->count)) return 0;
  for (i = 0; i < c->count; i++) {
    const uint32_t code = c->codes[i];
    if (code > m->codes) return 0;
    if (used >> m->code_resource[code] & 1u) return 0;
    used |= 1u << m->code_resource[code];
    /* The requantiser comes first, exactly when the array ran. */
    if (!(code == OPU_CODE_REQUANT && at == OPU_CODE_START) && !(m->follow[at] >> code & 1u))
      return 0;
    at = code;
  }
  return (int)(m->ends >> at & 1u);
}
