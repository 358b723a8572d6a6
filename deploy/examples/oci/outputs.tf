output "load_balancer_id" {
  description = "OCID of the load balancer, for the configuration of the syncer and for bindings."
  value       = oci_load_balancer_load_balancer.models.id
}

output "backend_set_name" {
  description = "Name of the backend set, for bindings."
  value       = oci_load_balancer_backend_set.chat.name
}

output "address" {
  description = "Address of the load balancer."
  value       = oci_load_balancer_load_balancer.models.ip_address_details[0].ip_address
}
