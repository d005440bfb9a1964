"""Tests of kubecache: they mirror the modules, and `integration` needs a real kube-apiserver."""
