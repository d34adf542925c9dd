"""Plain records that every room shares: target, device, measurement, estimate."""
