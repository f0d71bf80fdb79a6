"""What several tests share: random kernels, random graphs, checks of loop nests."""
