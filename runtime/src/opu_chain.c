/* Orders of the post chain: what the graph of a machine allows. */
#include "opu_native.h"

static uint64_t order_of(const int32_t *post) {
  const uint32_t bits = OPU_ORDER_STAGES_A_REGISTER * OPU_ORDER_CODE_BITS;
  return (uint64_t)(uint32_t)post[OPU_REG_POST_ORDER] |
         (uint64_t)(uint32_t)post[OPU_REG_POST_ORDER_2] << bits |
         (uint64_t)(uint32_t)post[OPU_REG_POST_ORDER_3] << (2u * bits);
}

uint32_t opu_codes(const int32_t *post, uint32_t codes[OPU_ORDER_STAGES]) {
  const uint64_t order = order_of(post);
  uint32_t count;
  for (count = 0; count < OPU_ORDER_STAGES; count++) {
    codes[count] = (uint32_t)(order >> (OPU_ORDER_CODE_BITS * count)) & (OPU_CODES - 1u);
    if (codes[count] == 0u) break;
  }
  return count;
}

int opu_has_order(const struct opu_machine_config *machine, const int32_t *post,
                  const uint32_t *codes, uint32_t count) {
  uint32_t at = OPU_CODE_START, used = 0, i;
  if (count < OPU_ORDER_STAGES && order_of(post) >> (OPU_ORDER_CODE_BITS * count)) return 0;
  for (i = 0; i < count; i++) {
    const uint32_t code = codes[i];
    if (code > machine->codes) return 0;
    if (used >> machine->code_resource[code] & 1u) return 0;
    used |= 1u << machine->code_resource[code];
    /* The requantiser comes first, exactly when the array ran. */
    if (!(code == OPU_CODE_REQUANT && at == OPU_CODE_START) && !(machine->follow[at] >> code & 1u))
      return 0;
    at = code;
  }
  return (int)(machine->ends >> at & 1u);
}
