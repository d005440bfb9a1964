"""What of a resource an informer holds."""

from typing import NamedTuple

from proxy.kube.negotiation import FormName
from proxy.kube.resources import Resource


class Scope(NamedTuple):
    """What of a resource an informer holds, and in which form.

    One namespace, or with "" all of them.
    """

    resource: Resource
    namespace: str = ""
    form: FormName = FormName.JSON

    @property
    def whole(self) -> "Scope":
        """All namespaces, in the same form."""
        return self._replace(namespace="")

    def __str__(self) -> str:
        """Spell it as informer ids are: ``pods.v1``, ``pods.v1/default``, ``pods.v1:table``."""
        namespace = f"/{self.namespace}" if self.namespace else ""
        form = f":{self.form}" if self.form is not FormName.JSON else ""
        return f"{self.resource}{namespace}{form}"
