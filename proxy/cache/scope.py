"""What of a resource an informer holds."""

from typing import NamedTuple

from proxy.kube.resources import Resource


class Scope(NamedTuple):
    """What of a resource an informer holds: one namespace, or with "" all of them."""

    resource: Resource
    namespace: str = ""

    def __str__(self) -> str:
        """Spell it as informer ids are: ``pods.v1`` or ``pods.v1/default``."""
        return f"{self.resource}/{self.namespace}" if self.namespace else str(self.resource)
