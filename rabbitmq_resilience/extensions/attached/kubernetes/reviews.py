"""Ask the API server whether we may do something in Kubernetes; nothing is done."""

from __future__ import annotations

from typing import Any

import urllib3
from kubernetes import client

from rabbitmq_resilience.extensions.attached.kubernetes.pods import ANSWERS_WITHIN_S, connected, words_of
from rabbitmq_resilience.extensions.attached.machine import MachineError


def may(
    configuration: client.Configuration, verb: str, resource: str, subresource: str = "", *, namespace: str, group: str
) -> bool:
    """Return whether we may do this.

    ``group``: the API group of the resource; empty for the core group. ``namespace``: empty for all namespaces, and for
    resources that are in none. Raise MachineError if the API server does not answer."""
    attributes = client.V1ResourceAttributes(
        namespace=namespace, verb=verb, resource=resource, subresource=subresource or None, group=group
    )
    review = client.V1SelfSubjectAccessReview(spec=client.V1SelfSubjectAccessReviewSpec(resource_attributes=attributes))
    try:
        with connected(configuration) as connection:
            api = client.AuthorizationV1Api(connection)
            answer: Any = api.create_self_subject_access_review(review, _request_timeout=ANSWERS_WITHIN_S)
    except (client.ApiException, urllib3.exceptions.HTTPError, OSError) as error:
        raise MachineError(f"rights in {namespace or 'the whole cluster'}: {words_of(error)}") from error
    return bool(answer.status.allowed)
