"""kubecache: a near cache for kube-apiserver. The rooms and their order: ARCHITECTURE.md."""
