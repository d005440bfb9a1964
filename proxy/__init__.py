"""kubecache: a near cache for kube-apiserver. The rooms and their order: ARCHITECTURE.md."""

from importlib.metadata import version

__version__ = version("kubecache")
