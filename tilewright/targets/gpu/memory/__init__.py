"""Where tensors, states and values lie on a device, for all targets for GPUs."""
