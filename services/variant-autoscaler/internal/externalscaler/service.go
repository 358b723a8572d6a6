// Package externalscaler serves the desired replicas of variants to KEDA, as one of its external scalers: without a metrics server between,
// so that a decision acts at KEDA's next poll, or at once from and to zero (trigger external-push). It contains KEDA's protocol, too.
//
// Only the leader listens. Replicas behind a Service that do not lead refuse connections, so that the connection that KEDA keeps finds its
// way to the leader; those that end their term close theirs. Without a decision an answer is an error, never zero: KEDA then holds the
// replicas, and after several errors falls back to what the ScaledObject says.
//
// # What a caller may learn
//
// KEDA fills in the namespace of a ScaledObject itself, so a tenant gets decisions on its own namespace only, whatever the metadata of the
// trigger says. A program that reaches the port directly can ask as KEDA does: for each namespace and name that it guesses, the answer is a
// number of replicas, or the same error whether the namespace, the object or the decision does not exist. Nothing can be listed or changed.
// Require client certificates, or admit only KEDA's operator by a NetworkPolicy. A TriggerAuthentication with the client certificate gives
// it to the tenant who may read its Secret: use a ClusterTriggerAuthentication.
package externalscaler

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// MetricName is the name of the metric in the HorizontalPodAutoscaler, after KEDA's prefix.
const MetricName = "wva-desired-replicas"

// Metadata of a trigger that we read. Without any, the name of the ScaledObject decides.
const (
	MetadataVariant    = "variantName"
	MetadataTargetKind = "targetKind"
	MetadataTargetName = "targetName"
)

const (
	// maxName is the greatest length of a name in Kubernetes.
	maxName = 253
	// target is the value of the metric that one replica stands for: with AverageValue, the HorizontalPodAutoscaler wants as many replicas
	// as the value of the metric.
	target = 1
)

// observer counts answers.
type observer interface {
	CountAnswer(method, code string)
	SetStreams(open int)
}

// service implements KEDA's protocol.
type service struct {
	UnimplementedExternalScalerServer
	decisions *Table
	streams   *streamCounter
}

// IsActive returns false only for a decision of zero.
func (s *service) IsActive(_ context.Context, ref *ScaledObjectRef) (*IsActiveResponse, error) {
	replicas, err := s.lookUpReplicas(ref)
	if err != nil {
		return nil, err
	}
	return &IsActiveResponse{Result: replicas > 0}, nil
}

// GetMetricSpec is the same for all, with and without a decision: KEDA before 2.20 wrote a HorizontalPodAutoscaler without metrics after an
// error, for which Kubernetes assumes a target of processor use.
func (*service) GetMetricSpec(context.Context, *ScaledObjectRef) (*GetMetricSpecResponse, error) {
	return metricSpec(), nil
}

func metricSpec() *GetMetricSpecResponse {
	return &GetMetricSpecResponse{MetricSpecs: []*MetricSpec{{MetricName: MetricName, TargetSize: target, TargetSizeFloat: target}}}
}

// GetMetrics returns the desired replicas. It does not matter what name the metric has in the request: there is only one.
func (s *service) GetMetrics(_ context.Context, request *GetMetricsRequest) (*GetMetricsResponse, error) {
	replicas, err := s.lookUpReplicas(request.GetScaledObjectRef())
	if err != nil {
		return nil, err
	}
	value := &MetricValue{MetricName: MetricName, MetricValue: int64(replicas), MetricValueFloat: float64(replicas)}
	return &GetMetricsResponse{MetricValues: []*MetricValue{value}}, nil
}

// StreamIsActive sends what IsActive answers, at first and with each change. While there is no decision on the object it sends nothing. It
// ends without an error at the end of a term, because KEDA opens the stream again two seconds later: after an error, within a minute.
func (s *service) StreamIsActive(ref *ScaledObjectRef, stream grpc.ServerStreamingServer[IsActiveResponse]) error {
	var sent *bool
	return s.followChanges(ref, stream, func(query Query) error {
		replicas, err := s.decisions.Lookup(query)
		if active := replicas > 0; err == nil && (sent == nil || *sent != active) {
			sent = &active
			return stream.Send(&IsActiveResponse{Result: active})
		}
		return nil
	})
}

// StreamMetricSpec sends what GetMetricSpec answers, once: it never changes. The stream stays open, as KEDA would open another one at once.
func (s *service) StreamMetricSpec(ref *ScaledObjectRef, stream grpc.ServerStreamingServer[GetMetricSpecResponse]) error {
	sent := false
	return s.followChanges(ref, stream, func(Query) error {
		if sent {
			return nil
		}
		sent = true
		return stream.Send(metricSpec())
	})
}

// followChanges calls send at first and with each change, until the end of the term or of the stream.
func (s *service) followChanges(ref *ScaledObjectRef, stream grpc.ServerStream, send func(query Query) error) error {
	query, err := queryOf(ref)
	if err != nil {
		return err
	}
	if leading, _ := s.decisions.Watch(); !leading {
		return statusOf(query, ErrNotLeading)
	}
	if !s.streams.tryOpen(query.Namespace) {
		return status.Error(codes.ResourceExhausted, "too many streams: use the trigger external instead of external-push")
	}
	defer s.streams.closeStream(query.Namespace)
	for {
		leading, changed := s.decisions.Watch()
		if !leading {
			return nil
		}
		if err := send(query); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		}
	}
}

func (s *service) lookUpReplicas(ref *ScaledObjectRef) (int, error) {
	query, err := queryOf(ref)
	if err != nil {
		return 0, err
	}
	replicas, err := s.decisions.Lookup(query)
	if err != nil {
		return 0, statusOf(query, err)
	}
	return replicas, nil
}

// queryOf returns the query for a ScaledObject.
func queryOf(ref *ScaledObjectRef) (Query, error) {
	metadata := ref.GetScalerMetadata()
	q := Query{
		Namespace: ref.GetNamespace(), ScaledObject: ref.GetName(),
		Variant: metadata[MetadataVariant], TargetKind: metadata[MetadataTargetKind], TargetName: metadata[MetadataTargetName],
	}
	if q.Namespace == "" || q.ScaledObject == "" {
		return q, status.Error(codes.InvalidArgument, "the ScaledObject has no name or no namespace")
	}
	for _, text := range []string{q.Namespace, q.ScaledObject, q.Variant, q.TargetKind, q.TargetName} {
		if len(text) > maxName {
			return q, status.Errorf(codes.InvalidArgument, "a name has more than %d characters", maxName)
		}
	}
	return q, nil
}

// statusOf returns what the caller gets. Its texts say nothing that the caller did not.
func statusOf(q Query, err error) error {
	if errors.Is(err, ErrNotLeading) {
		return status.Error(codes.Unavailable, err.Error())
	}
	return status.Errorf(codes.NotFound, "%v on ScaledObject %s/%s: annotate it as a variant, or name the variant in the trigger's metadata (%s), and wait for a pass",
		err, q.Namespace, q.ScaledObject, MetadataVariant)
}
