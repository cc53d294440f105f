// Sums of a pixel to the factor, offset and shift of its values, as opu_fuse/normalisation.py defines them
// (`softmax_scaling`, `norm_scaling`, `rms_scaling`). One pixel per cycle, latency 22.
//
//   cycle 0       1            2               3          4                5            6
//   values --> [absolute] -> [products] ------------> [sums] -> [n*S2 - S1**2] -> [* 2**8 + epsilon] --+
//   terms ------------------------------------------- (softmax: 0 + exponentials) --^
//
//   6 -> [bytes not 0] -> [highest byte] -> [its bits] -> [leading one] -> [fraction] -> 11 -> lines (2)
//     -> [fall * along] -> [round] -> [inverse] -> 16 -> [* mantissa or count; * total] -> [sums] -> [width]
//     -> [narrow by 4s] -> [by 1s] -> [round] -> 22
//
// Settings are constant from valid_i until the result. softmax_i: of exponentials, rms_i: of squares about centre_i / n.
module opu_norm_scaling
  import opu_pkg::*;
#(
    parameter int unsigned TAG_BITS = 9
) (
    input  logic                 clk_i,
    input  logic                 rst_ni,

    input  logic                 softmax_i,
    input  logic                 rms_i,
    input  logic [17:0]          count_i,
    input  logic signed [24:0]   centre_i,
    input  logic [56:0]          epsilon_i,
    input  logic [16:0]          mantissa_i,
    input  logic signed [6:0]    exponent_i,

    input  logic                 valid_i,
    input  logic [TAG_BITS-1:0]  tag_i,
    input  logic [40:0]          terms_i,
    input  logic signed [24:0]   values_i,

    output logic                 pending_o,
    output logic                 valid_o,
    output logic [TAG_BITS-1:0]  tag_o,
    output logic [24:0]          factor_o,
    output logic signed [31:0]   offset_o,
    output logic [5:0]           shift_o     // more by 6 than the definition's, within 0 and 63
);

  localparam int unsigned LATENCY = 22;
  logic [LATENCY-1:0] valid_q;
  logic [TAG_BITS-1:0] tag_q [LATENCY];
  assign pending_o = valid_i || valid_q != '0;
  assign valid_o = valid_q[LATENCY-1];
  assign tag_o = tag_q[LATENCY-1];
  always_ff @(posedge clk_i) begin
    valid_q <= rst_ni ? {valid_q[LATENCY-2:0], valid_i} : '0;
    tag_q[0] <= tag_i;
    for (int unsigned s = 1; s < LATENCY; s++) tag_q[s] <= tag_q[s-1];
  end

  // ---- variance, or sum of exponentials -----------------------------------------------------------------------------

  logic [40:0] terms_q [3];
  logic signed [24:0] total_q [17];
  logic [24:0] absolute_q [2], middle_q, high_square_q [2];
  logic [23:0] low_square_q [2];
  logic [33:0] low_q [2];               // count times halves of the squares
  logic [32:0] high_q;
  // From here on lower bits are a cycle ahead of the upper ones, which take their borrow and carry.
  logic [13:0] low_difference_q;
  logic [48:13] mean_q, square_q, difference_q;
  logic [57:0] addend_q [2], x_q;
  logic [21:0] low_x_q;
  logic [36:0] high_x;
  logic [48:13] difference;
  logic unused_carry, unused_carries;  // the lowest bits of these sums, 1 and a carry, are the next one's carry
  assign {difference, unused_carry} = {mean_q, 1'b1} + {~square_q, ~low_difference_q[13]};
  assign {high_x, unused_carries} = {37'(difference_q), 1'b1} + {addend_q[1][57:21], low_x_q[21]};
  always_ff @(posedge clk_i) begin
    terms_q <= '{terms_i, terms_q[0], terms_q[1]};
    total_q[0] <= softmax_i ? '0 : rms_i ? centre_i : values_i;
    for (int unsigned s = 1; s < 17; s++) total_q[s] <= total_q[s-1];
    if (!rst_ni) {total_q[15], total_q[16]} <= '0;  // else they are in shift registers of LUTs, which take long to read
    absolute_q <= '{rms_i ? '0 : values_i[24] ? 25'(-values_i) : 25'(values_i), absolute_q[0]};
    // Each sum is that of a slice: its own product, and one that has passed the output register of another.
    low_square_q <= '{24'(absolute_q[0][11:0]) * 24'(absolute_q[0][11:0]), low_square_q[0]};
    high_square_q <= '{25'(absolute_q[0][24:12]) * 25'(absolute_q[0][24:12]), high_square_q[0]};
    middle_q <= 25'(absolute_q[1][24:12]) * 25'(absolute_q[1][11:0]);
    square_q <= 36'(middle_q) + {high_square_q[1], low_square_q[1][23:13]};
    low_q <= '{34'(count_i) * 34'(terms_q[0][15:0]), low_q[0]};
    high_q <= 33'(count_i) * 33'(terms_q[1][31:16]);
    mean_q[15:13] <= low_q[1][15:13];
    mean_q[48:16] <= high_q + 33'(low_q[1][33:16]);
    low_difference_q <= softmax_i ? '0 : 14'(low_q[1][12:0]) - 14'(low_square_q[1][12:0]);
    difference_q <= softmax_i ? '0 : difference;
    addend_q <= '{softmax_i ? 58'(terms_q[2]) : 58'(epsilon_i), addend_q[0]};
    low_x_q <= 22'({low_difference_q[12:0], 8'd0}) + 22'(addend_q[0][20:0]);
    x_q <= {high_x, low_x_q[20:0]};
  end

  // ---- leading one --------------------------------------------------------------------------------------------------

  logic [7:0] some_q;                   // of the bytes
  logic [57:0] late_x_q [2];
  logic [2:0] byte_q [3], zeros_q;
  logic [31:0] top_q, late_top_q;       // the highest byte that is not 0 and three more
  logic [5:0] exponent_q [8];           // from item 11 on
  logic [19:0] fraction_q;
  logic [2:0] highest, zeros;
  logic [87:0] padded;
  assign padded = {6'd0, late_x_q[1], 24'd0};
  always_comb begin
    highest = '0;
    for (int unsigned g = 0; g < 8; g++) if (some_q[g]) highest = 3'(g);
    zeros = '0;
    for (int unsigned b = 0; b < 8; b++) if (top_q[24+b]) zeros = 3'(7 - b);
  end
  /* verilator lint_off UNUSEDSIGNAL */  // the leading one, and what is cut off
  logic [31:0] aligned;
  /* verilator lint_on UNUSEDSIGNAL */
  assign aligned = late_top_q << zeros_q;
  always_ff @(posedge clk_i) begin
    for (int unsigned g = 0; g < 8; g++) some_q[g] <= (64'(x_q) >> 8 * g & 64'hff) != '0;
    late_x_q <= '{x_q, late_x_q[0]};
    byte_q <= '{highest, byte_q[0], byte_q[1]};
    top_q <= padded[8*32'(byte_q[0])+:32];
    late_top_q <= top_q;
    zeros_q <= zeros;
    fraction_q <= aligned[30:11];
    exponent_q[0] <= {byte_q[2], ~zeros_q};
    for (int unsigned s = 1; s < 8; s++) exponent_q[s] <= exponent_q[s-1];
    if (!rst_ni) {exponent_q[7], late_x_q[1]} <= '0;
  end

  // ---- reciprocal or inverse root: a line, and the place on it ------------------------------------------------------

  logic [2:0][35:0] lines_q;            // for roots of even and odd exponents, for reciprocals
  logic odd_q;
  logic [35:0] line_q;
  logic [12:0] along_q [2];
  logic [26:0] fall_q;
  logic [14:0] dropped_q;
  logic [21:0] start_q [2];
  logic [16:0] inverse_q;
  /* verilator lint_off UNUSEDSIGNAL */  // bits after the point
  logic [21:0] value;
  logic [26:0] fallen;
  /* verilator lint_on UNUSEDSIGNAL */
  assign fallen = fall_q + 27'd4096;
  assign value = start_q[1] - 22'(dropped_q);
  always_ff @(posedge clk_i) begin
    for (int unsigned n = 0; n < 3; n++) lines_q[n] <= NORM_LINES[{2'(n), fraction_q[19:13]}];
    odd_q <= exponent_q[0][0];
    line_q <= lines_q[softmax_i ? 2'd2 : {1'b0, odd_q}];
    along_q <= '{softmax_i ? {fraction_q[12:1], 1'b0} : fraction_q[12:0], along_q[0]};
    fall_q <= 27'(line_q[35:22]) * 27'(along_q[1]);
    start_q <= rst_ni ? '{line_q[21:0], start_q[0]} : '{default: '0};
    dropped_q <= 15'(fallen >> 13);
    inverse_q <= value[21] ? '1 : value[20:4];
  end

  // ---- factor and offset --------------------------------------------------------------------------------------------

  logic [17:0] multiplicand_q;
  logic [16:0] late_inverse_q;
  logic [34:0] factor_q, wide_factor_q, late_factor_q;
  logic [28:0] low_offset_q [2];
  logic signed [29:0] high_offset_q;
  logic signed [41:0] late_offset_q;
  logic [3:0] narrow, narrow_q;
  // Values at each step of the narrowing; their lowest bit is the half, `rest`: bits below it were set.
  logic [35:0] coarse_factor_q, factor_half;
  logic signed [42:0] coarse_offset_q, offset_half;
  logic [25:0] narrow_factor_q;
  logic signed [32:0] narrow_offset_q;
  logic [1:0] by_4, by_1_q, coarse_rest_q, rest_q;
  logic signed [8:0] from_exponent_q, shift_q [3];
  assign factor_half = {late_factor_q, 1'b0};
  assign offset_half = {late_offset_q, 1'b0};
  assign by_4 = narrow_q[3:2];
  always_comb begin
    narrow = '0;
    for (int unsigned b = 0; b < 11; b++) if (wide_factor_q[24+b]) narrow = 4'(b + 1);
    if (softmax_i) narrow = '0;
  end
  function automatic logic some_below(logic [7:0] bits, logic [3:0] amount);
    some_below = (bits & ~(8'hff << amount)) != '0;
  endfunction
  always_ff @(posedge clk_i) begin
    multiplicand_q <= softmax_i ? 18'(mantissa_i) : count_i;
    factor_q <= 35'(inverse_q) * 35'(multiplicand_q);
    wide_factor_q <= factor_q + (softmax_i ? 35'h8000 : '0);
    late_factor_q <= softmax_i ? wide_factor_q >> 16 : wide_factor_q;
    late_inverse_q <= inverse_q;
    low_offset_q <= '{29'(total_q[15][11:0]) * 29'(inverse_q), low_offset_q[0]};
    high_offset_q <= 30'(signed'(total_q[16][24:12])) * 30'(signed'({1'b0, late_inverse_q}));
    late_offset_q[11:0] <= low_offset_q[1][11:0];
    late_offset_q[41:12] <= high_offset_q + 30'(low_offset_q[1][28:12]);
    narrow_q <= narrow;
    coarse_factor_q <= factor_half >> 4 * 32'(by_4);
    coarse_offset_q <= offset_half >>> 4 * 32'(by_4);
    coarse_rest_q <= {some_below(factor_half[7:0], {by_4, 2'b0}), some_below(offset_half[7:0], {by_4, 2'b0})};
    by_1_q <= narrow_q[1:0];
    narrow_factor_q <= 26'(coarse_factor_q >> by_1_q);
    narrow_offset_q <= 33'(coarse_offset_q >>> by_1_q);
    rest_q <= coarse_rest_q | {
        some_below(8'(coarse_factor_q[2:0]), 4'(by_1_q)), some_below(8'(coarse_offset_q[2:0]), 4'(by_1_q))
    };
    factor_o <= narrow_factor_q[25:1] + 25'(narrow_factor_q[0] && (narrow_factor_q[1] || rest_q[1]));
    offset_o <= narrow_offset_q[32:1] + 32'(narrow_offset_q[0] && (narrow_offset_q[1] || rest_q[0]));
    from_exponent_q <= softmax_i ? 9'sd23 - 9'(exponent_i) : 9'sd4;
    shift_q <= '{
        from_exponent_q + 9'(softmax_i ? exponent_q[7] : {1'b0, exponent_q[7][5:1]}),
        shift_q[0] - 9'(narrow_q),
        shift_q[1]
    };
    shift_o <= shift_q[2][8] ? '0 : (shift_q[2] > 9'sd63) ? 6'd63 : shift_q[2][5:0];
  end

endmodule
