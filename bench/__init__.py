"""Benchmarks: what the proxy costs against kube-apiserver, as ratios of one run."""
