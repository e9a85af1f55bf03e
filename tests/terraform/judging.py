"""moto, which speaks for S3, IAM, KMS and STS, with a judge: a bucket's policy is held to in full.

moto itself takes each Deny for one without conditions, so behind a policy of TLS only it
refuses everything. Here a denial is decided by `evaluator`, from the request's own headers:
whoever signs with the access key ``writer`` is the role of that name. Requests count as sent
by TLS, since there is none to a server on this machine. What a role's own policy allows is
not asked. Versions can be deleted as on Amazon also while the bucket makes no new ones: moto does not,
and a bucket that Terraform destroys is never empty.

Run as a program it serves on the port that it is given.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Mapping
from typing import Any

from tests.servers import moto
from tests.servers.base import Server, free_ports, new_folder, ready, spawn
from tests.terraform.calls import conditions_of
from tests.terraform.evaluator import Call, matches, statements
from tests.terraform.policies import role_arn

_SIGNED_BY = re.compile(r"Credential=([^/]+)/")
_READ_BY = {"s3:HeadObject": "s3:GetObject"}
"""moto names rights by methods; there is none to ask for a head."""


def start() -> Server:
    """Start it.

    Raises:
        Unavailable: With the reason.
    """
    started = time.monotonic()
    [port] = free_ports(1)
    process = spawn([sys.executable, "-m", __name__, str(port)], new_folder("judging"))
    server = Server("judging", f"http://127.0.0.1:{port}", races=False, process=process)
    return ready(server, timeout=60, started=started)


def is_denied(policy: str | bytes, action: str, resource: str, headers: Mapping[str, str]) -> bool:
    """Whether a bucket's policy denies a request."""
    signer = _SIGNED_BY.search(headers.get("Authorization", ""))
    given = {name.lower(): value for name, value in headers.items()}
    context = conditions_of(given)
    if action == "s3:PutObject":
        context["s3:ObjectCreationOperation"] = "true"
    call = Call(_READ_BY.get(action, action), resource, context).by(
        role_arn(signer[1] if signer else "nobody")
    )
    text = policy.decode() if isinstance(policy, bytes) else policy
    return any(one["Effect"] == "Deny" and matches(one, call) for one in statements(text))


def main() -> None:
    from flask import request
    from moto.iam.access_control import PermissionResult
    from moto.s3.models import FakeBucket

    def get_permission(self: Any, action: str, resource: str) -> Any:
        refused = self.policy is not None and is_denied(self.policy, action, resource, dict(request.headers))
        return PermissionResult.DENIED if refused else PermissionResult.NEUTRAL

    FakeBucket.get_permission = get_permission
    FakeBucket.is_versioned = property(lambda self: self.versioning_status in ("Enabled", "Suspended"))
    moto.main()


if __name__ == "__main__":
    main()
