"""Calls of Oracle's library for Python to an emulator of OCI Load Balancers.

usage: sdk.py <configuration file> <endpoint> <compartment>

Prints a line for each step. The library raises an error for an answer that it cannot read.
"""

import sys

import oci
from oci.load_balancer import models

config = oci.config.from_file(sys.argv[1])
client = oci.load_balancer.LoadBalancerClient(config, service_endpoint=sys.argv[2])
waiting = oci.load_balancer.LoadBalancerClientCompositeOperations(client)
succeeded = {"wait_for_states": [models.WorkRequest.LIFECYCLE_STATE_SUCCEEDED], "waiter_kwargs": {"max_interval_seconds": 1, "max_wait_seconds": 60}}


def step(name, *values):
    print(name, *values, sep="\t")


waiting.create_load_balancer_and_wait_for_state(
    models.CreateLoadBalancerDetails(
        compartment_id=sys.argv[3],
        display_name="sdk",
        shape_name="flexible",
        shape_details=models.ShapeDetails(minimum_bandwidth_in_mbps=10, maximum_bandwidth_in_mbps=100),
        subnet_ids=["ocid1.subnet.oc1..a"],
    ),
    **succeeded,
)
lb = client.list_load_balancers(sys.argv[3], display_name="sdk").data[0]
step("create", lb.lifecycle_state, lb.shape_name, lb.shape_details.maximum_bandwidth_in_mbps)

for name in ["a", "b"]:
    waiting.create_backend_set_and_wait_for_state(
        models.CreateBackendSetDetails(
            name=name,
            policy="ROUND_ROBIN",
            health_checker=models.HealthCheckerDetails(protocol="HTTP", url_path="/health", return_code=204),
            backends=[models.BackendDetails(ip_address="10.0.0.1", port=8000)],
            ssl_configuration=models.SSLConfigurationDetails(trusted_certificate_authority_ids=["ocid1.cabundle.oc1..a"]),
        ),
        lb.id,
        **succeeded,
    )
made = client.get_backend_set(lb.id, "a")
step("backend set", made.data.backends[0].name, made.data.health_checker.return_code, made.data.ssl_configuration.verify_depth, made.data.ssl_configuration.verify_peer_certificate)

# Pages of two work requests: one for the load balancer, and one for each backend set.
pages = oci.pagination.list_call_get_all_results(client.list_work_requests, lb.id, limit=2)
step("pages", len(pages.data), len({w.id for w in pages.data}))

try:
    client.delete_backend_set(lb.id, "a", if_match="old")
except oci.exceptions.ServiceError as e:
    step("old etag", e.status, e.code)
try:
    client.get_backend_set(lb.id, "none")
except oci.exceptions.ServiceError as e:
    step("missing", e.status, e.code)

old = client.get_load_balancer("ocid1.loadbalancer.oc1..old").data
step("fixed shape", old.shape_name, old.shape_details)

waiting.delete_load_balancer_and_wait_for_state(lb.id, **succeeded)
step("delete", len(client.list_load_balancers(sys.argv[3], display_name="sdk").data))
