"""Matrix products (GEMM, and convolutions as implicit im2col) by workgroups with register tiles."""
