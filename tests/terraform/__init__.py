"""The Terraform modules: as Terraform reads them, and as policies decide."""
