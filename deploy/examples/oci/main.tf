resource "oci_load_balancer_load_balancer" "models" {
  compartment_id             = var.compartment_id
  display_name               = var.name
  shape                      = "flexible"
  subnet_ids                 = var.load_balancer_subnet_ids
  is_private                 = var.is_private
  network_security_group_ids = [oci_core_network_security_group.load_balancer.id]

  shape_details {
    minimum_bandwidth_in_mbps = var.bandwidth_in_mbps.minimum
    maximum_bandwidth_in_mbps = var.bandwidth_in_mbps.maximum
  }
}

# The syncer writes the backends of this set, and nothing else of it. The provider computes the attribute backend, so a plan shows no
# difference, and ignore_changes is not needed. Do not add oci_load_balancer_backend resources for this set: Terraform would create
# and delete backends that the syncer owns.
#
# If the binding has a healthChecker, the syncer owns that block too: add lifecycle { ignore_changes = [health_checker] }.
resource "oci_load_balancer_backend_set" "chat" {
  load_balancer_id = oci_load_balancer_load_balancer.models.id
  name             = var.backend_set_name
  policy           = "LEAST_CONNECTIONS" # streams differ in length

  health_checker {
    protocol          = "HTTP"
    url_path          = "/health"
    port              = 0 # that of each backend
    return_code       = 200
    interval_ms       = 5000
    timeout_in_millis = 3000
    retries           = 3
  }
}

# Plain HTTP, for clients in the VCN. Add an ssl_configuration before clients elsewhere use it.
resource "oci_load_balancer_listener" "http" {
  load_balancer_id         = oci_load_balancer_load_balancer.models.id
  name                     = "http"
  default_backend_set_name = oci_load_balancer_backend_set.chat.name
  port                     = 80
  protocol                 = "HTTP"

  connection_configuration {
    idle_timeout_in_seconds = var.idle_timeout_in_seconds
  }
}

resource "oci_core_network_security_group" "load_balancer" {
  compartment_id = var.compartment_id
  vcn_id         = var.vcn_id
  display_name   = "${var.name}-load-balancer"
}

resource "oci_core_network_security_group_security_rule" "from_clients" {
  for_each                  = var.client_cidrs
  network_security_group_id = oci_core_network_security_group.load_balancer.id
  description               = "Clients"
  direction                 = "INGRESS"
  protocol                  = "6" # TCP
  source                    = each.value
  source_type               = "CIDR_BLOCK"

  tcp_options {
    destination_port_range {
      min = 80
      max = 80
    }
  }
}

resource "oci_core_network_security_group_security_rule" "to_pods" {
  network_security_group_id = oci_core_network_security_group.load_balancer.id
  description               = "Requests and health checks to model servers"
  direction                 = "EGRESS"
  protocol                  = "6"
  destination               = var.pod_cidr
  destination_type          = "CIDR_BLOCK"

  tcp_options {
    destination_port_range {
      min = var.model_server_port
      max = var.model_server_port
    }
  }
}

resource "oci_core_network_security_group_security_rule" "from_load_balancer" {
  count                     = var.pod_nsg_id == null ? 0 : 1
  network_security_group_id = var.pod_nsg_id
  description               = "Requests and health checks of load balancer ${var.name}"
  direction                 = "INGRESS"
  protocol                  = "6"
  source                    = oci_core_network_security_group.load_balancer.id
  source_type               = "NETWORK_SECURITY_GROUP"

  tcp_options {
    destination_port_range {
      min = var.model_server_port
      max = var.model_server_port
    }
  }
}

# "use" permits reads and changes of load balancers, and neither their creation nor their deletion. IAM cannot name single load
# balancers: give the load balancers of the syncer a compartment of their own.
locals {
  statements = {
    workload-identity = [join("", [
      "Allow any-user to use load-balancers in compartment id ${var.compartment_id} where all {request.principal.type = 'workload', ",
      "request.principal.cluster_id = '${var.cluster_id}', request.principal.namespace = '${var.service_account.namespace}', ",
      "request.principal.service_account = '${var.service_account.name}'}",
    ])]
    instance-principal = [
      for group in oci_identity_dynamic_group.nodes : "Allow dynamic-group id ${group.id} to use load-balancers in compartment id ${var.compartment_id}"
    ]
    none = []
  }
}

resource "oci_identity_policy" "syncer" {
  provider       = oci.home
  count          = var.identity == "none" ? 0 : 1
  compartment_id = var.compartment_id
  name           = "${var.name}-backendset-syncer"
  description    = "Access of the backendset-syncer to load balancers"
  statements     = local.statements[var.identity]

  lifecycle {
    precondition {
      condition     = var.identity != "workload-identity" || var.cluster_id != ""
      error_message = "identity workload-identity needs cluster_id."
    }
  }
}

resource "oci_identity_dynamic_group" "nodes" {
  provider       = oci.home
  count          = var.identity == "instance-principal" ? 1 : 0
  compartment_id = var.tenancy_id
  name           = "${var.name}-backendset-syncer"
  description    = "Worker nodes of the cluster of the backendset-syncer"
  matching_rule  = "ALL {instance.compartment.id = '${var.node_compartment_id}'}"

  lifecycle {
    precondition {
      condition     = var.tenancy_id != "" && var.node_compartment_id != ""
      error_message = "identity instance-principal needs tenancy_id and node_compartment_id."
    }
  }
}
