// opu_unfold writes rows * kernel_rows * n words, one a cycle from the ninth after its start on: row after row, kernel
// row after kernel row, all words in their order. It is busy until the last one is written, and reports that a cycle
// before. All this holds until it reports an access outside a memory (beyond).
module opu_unfold_proof
  import opu_pkg::*;
(
    input logic                    clk_i,
    input logic                    rst_ni,
    input logic                    start_i,
    input load_params_t            params_i,
    input logic [WORD_BYTES*8-1:0] image_rdata_i
);

  localparam int unsigned FIRST = 9;                 // cycles from the start to the first word

  logic busy, finish, beyond, we;
  logic [VALUE_BITS-1:0] addr;

  opu_unfold dut (
      .clk_i,
      .rst_ni,
      .halt_i       (1'b0),
      .start_i,
      .params_i,
      .legal_i      (1'b1),
      .busy_o       (busy),
      .finish_o     (finish),
      .beyond_o     (beyond),
      .image_re_o   (),
      .image_addr_o (),
      .image_rdata_i,
      .we_o         (we),
      .strobe_o     (),
      .addr_o       (addr),
      .data_o       ()
  );

  // Words of a row: run columns of 9, 16 or 22 quarters, rounded up.
  logic [7:0] row_words;
  always_comb begin
    unique case (params_i.kernel_rows)
      8'd3: row_words = 8'((10'(params_i.run) * 10'd9 + 10'd3) >> 2);
      8'd5: row_words = 8'(10'(params_i.run) * 10'd4);
      default: row_words = 8'((10'(params_i.run) * 10'd22 + 10'd3) >> 2);
    endcase
  end

  // What is to be written next: word of its row, kernel row, row; the first word of the row.
  logic begun_q = 1'b0, running_q;
  logic [7:0] age_q, n_q, word_q, ky_q, kernel_q, row_q, rows_q;
  logic [VALUE_BITS-1:0] base_q;
  logic writes, last;
  assign writes = running_q && age_q >= 8'(FIRST);
  assign last = writes && word_q == n_q - 8'd1 && ky_q == kernel_q - 8'd1 && row_q == rows_q - 8'd1;

  always_ff @(posedge clk_i) begin
    begun_q <= 1'b1;
    if (!rst_ni) begin
      running_q <= 1'b0;
    end else begin
      if (last) running_q <= 1'b0;
      if (start_i) running_q <= 1'b1;
    end
    if (start_i) begin
      age_q <= 8'd1;
      n_q <= row_words;
      kernel_q <= params_i.kernel_rows;
      rows_q <= 8'(params_i.rows);
      base_q <= params_i.dst;
      {word_q, ky_q, row_q} <= '0;
    end else begin
      if (!writes) age_q <= age_q + 8'd1;
      if (writes) begin
        word_q <= word_q + 8'd1;
        if (word_q == n_q - 8'd1) begin
          word_q <= '0;
          ky_q <= ky_q + 8'd1;
          if (ky_q == kernel_q - 8'd1) begin
            ky_q <= '0;
            row_q <= row_q + 8'd1;
            base_q <= base_q + VALUE_BITS'(n_q);
          end
        end
      end
    end
  end

  // Up to the first access outside a memory; a word after the end of the buffer is reported a cycle later.
  logic missed_q = 1'b0, outside;
  assign outside = 32'(base_q) + 32'(word_q) >= FEATURE_WORDS;
  always_ff @(posedge clk_i) missed_q <= rst_ni && (missed_q || beyond);

  always_comb begin
    assume (begun_q || !rst_ni);
    assume (!start_i || !busy);
    assume (params_i.kernel_rows == 8'd3 || params_i.kernel_rows == 8'd5 || params_i.kernel_rows == 8'd7);
    assume (params_i.run != '0 && params_i.run <= 16'd3 && params_i.rows != '0 && params_i.rows <= 16'd3);
    if (begun_q && rst_ni && !missed_q && !beyond) begin
      assert (we == (writes && !outside));
      if (we) assert (addr == base_q + VALUE_BITS'(word_q) && 32'(addr) < FEATURE_WORDS);
      assert (busy == (running_q && !last));
    end
    if (begun_q && rst_ni && (missed_q || beyond)) assert (!we || 32'(addr) < FEATURE_WORDS);
  end

  logic finish_q = 1'b0;
  always_ff @(posedge clk_i) finish_q <= rst_ni && finish;
  always_comb if (begun_q && rst_ni && !missed_q && !beyond) assert (finish_q == last);

endmodule
