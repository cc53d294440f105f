// Assertion macros. Every module that uses them has clk_i and a synchronous active-low rst_ni.
//
// `OPU_ASSERT(name, property)        holds at every rising clock edge outside reset
// `OPU_ASSERT_STATIC(name, constant) holds for the parameters (checked at elaboration)
// `OPU_STABLE(name, valid, ready, x) while valid waits for ready, valid is held and x does not change
// `OPU_COVER(name, property)         happens in a test (`make coverage` counts it)
`ifndef OPU_ASSERT_SVH
`define OPU_ASSERT_SVH

`ifdef SYNTHESIS
`define OPU_ASSERT(name, property_expr)
`define OPU_STABLE(name, valid, ready, payload)
`define OPU_COVER(name, property_expr)
`else
`define OPU_ASSERT(name, property_expr) \
  name : assert property (@(posedge clk_i) disable iff (!rst_ni) (property_expr)) \
  else $error("%m: %s", `"name`");
`define OPU_STABLE(name, valid, ready, payload) \
  `OPU_ASSERT(name, (valid) && !(ready) |=> (valid) && $stable(payload))
`define OPU_COVER(name, property_expr) \
  name : cover property (@(posedge clk_i) disable iff (!rst_ni) (property_expr));
`endif  // SYNTHESIS

`define OPU_ASSERT_STATIC(name, condition) \
  if (!(condition)) begin : g_static_``name \
    $error("unsupported parameters: %s", `"name`"); \
  end

`endif  // OPU_ASSERT_SVH
