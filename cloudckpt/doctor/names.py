"""What an engine is called, and the packages it works by."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from cloudckpt.storage.contract import Storage

_ENGINES = {
    "MemoryStorage": ("memory", ()),
    "FileStorage": ("file", ()),
    "S3Storage": ("s3fs", ("s3fs", "aiobotocore", "botocore")),
    "Boto3Storage": ("boto3", ("boto3", "botocore")),
    "GCSStorage": ("gcsfs", ("gcsfs", "google-auth")),
    "AzureStorage": ("adlfs", ("adlfs", "azure-storage-blob")),
    "ObstoreStorage": ("obstore", ("obstore",)),
}


def engine_name(engine: Storage) -> str:
    """Return the word that `engine=` takes, or the class's name of somebody else's engine."""
    name = type(engine).__name__
    return _ENGINES[name][0] if name in _ENGINES else name


def engine_packages(engine: Storage) -> dict[str, str]:
    """Return the versions of the packages that the engine works by."""
    packages = _ENGINES.get(type(engine).__name__, ("", ()))[1]
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue  # botocore alone does for the engine 'boto3'
    return found
