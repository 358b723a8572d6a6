terraform {
  required_version = ">= 1.5"
  required_providers {
    oci = {
      source  = "oracle/oci"
      version = ">= 5.0"
    }
  }
}

provider "oci" {
  region = var.region
}

# OCI accepts changes of policies and dynamic groups in the home region of the tenancy only.
provider "oci" {
  alias  = "home"
  region = var.home_region
}
