"""From a file to an estimate: partition, priors, posterior, gate, composition."""
