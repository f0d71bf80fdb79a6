"""Matrix products (GEMM, and convolutions as implicit im2col) by workgroups.

There is a file for each strategy: register tiles (`register_gemm.py`), few rows (`few_rows.py`, and
`few_rows_int8.py` with rows rounded to bytes), bytes (`integer_gemm.py`), f16 (`f16_gemm.py`), and
rows that a subgroup shares (`subgroup_gemm.py`).  `chains.py` joins chains of products,
and `row_sources.py` has the rows that they read.  `fast_division.py` divides where the result is
rounded, and `cost_model.py` estimates times.
"""
