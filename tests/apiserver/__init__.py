"""The recipe of the real kube-apiserver that the integration tests run against."""
