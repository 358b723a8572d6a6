variable "region" {
  description = "Region of the load balancer, such as us-ashburn-1."
  type        = string
}

variable "home_region" {
  description = "Home region of the tenancy, for policies and dynamic groups."
  type        = string
}

variable "compartment_id" {
  description = "OCID of the compartment of the load balancer. The syncer gets access to all load balancers of this compartment."
  type        = string
}

variable "vcn_id" {
  description = "OCID of the VCN of the cluster."
  type        = string
}

variable "load_balancer_subnet_ids" {
  description = "OCIDs of the subnets of the load balancer."
  type        = list(string)
}

variable "pod_cidr" {
  description = "Range of the pod subnet. The cluster needs VCN-native pod networking: the load balancer connects to addresses of pods."
  type        = string
}

variable "pod_nsg_id" {
  description = "OCID of the network security group of the pods. null: no rule is added, and a security list of the pod subnet must admit the load balancer."
  type        = string
  default     = null
}

variable "client_cidrs" {
  description = "Ranges of clients."
  type        = set(string)
}

variable "model_server_port" {
  description = "Port of the model servers."
  type        = number
  default     = 8000
}

variable "name" {
  description = "Name of the load balancer, and prefix of other names."
  type        = string
  default     = "models"
}

variable "backend_set_name" {
  description = "Name of the backend set. It cannot be changed later."
  type        = string
  default     = "chat"
}

variable "is_private" {
  description = "Whether the load balancer has a private address only."
  type        = bool
  default     = true
}

variable "bandwidth_in_mbps" {
  description = "Bandwidth of the flexible shape."
  type        = object({ minimum = number, maximum = number })
  default     = { minimum = 10, maximum = 100 }
}

variable "idle_timeout_in_seconds" {
  description = "Time for which a connection may be silent: more than the longest time to first token, and the longest pause of a stream. OCI's default for HTTP is 60."
  type        = number
  default     = 1200
}

variable "identity" {
  description = "How the syncer authenticates: workload-identity, instance-principal, or none for API keys, whose policy you write yourself."
  type        = string
  default     = "workload-identity"
  validation {
    condition     = contains(["workload-identity", "instance-principal", "none"], var.identity)
    error_message = "identity must be workload-identity, instance-principal or none."
  }
}

variable "cluster_id" {
  description = "OCID of the OKE cluster, for workload-identity. It must be an enhanced cluster."
  type        = string
  default     = ""
}

variable "service_account" {
  description = "ServiceAccount of the syncer, for workload-identity."
  type        = object({ namespace = string, name = string })
  default     = { namespace = "fairlead", name = "backendset-syncer" }
}

variable "tenancy_id" {
  description = "OCID of the tenancy, for the dynamic group of instance-principal."
  type        = string
  default     = ""
}

variable "node_compartment_id" {
  description = "OCID of the compartment of the worker nodes, for instance-principal. Every instance of this compartment gets the same access."
  type        = string
  default     = ""
}
