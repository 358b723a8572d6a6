package collect

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"strings"
)

// Names of the queue in the metrics of the picker. Releases have one of them, or both.
const (
	NewQueue    = "llm_d_epp_flow_control_queue_size"
	LegacyQueue = "inference_extension_flow_control_queue_size"
)

// Queue is a model for which requests wait in a picker. Pool is empty if the picker does not name it.
type Queue struct{ Namespace, Pool, Model string }

// ReadQueues returns the models of all namespaces for which requests wait. One query for all of them is small: it returns only queues that
// are not empty.
func ReadQueues(ctx context.Context, q querier) ([]Queue, error) {
	vector, err := q.Query(ctx, fmt.Sprintf(`sum by (namespace, inference_pool, target_model_name, model_name) ({__name__=~"%s"}) > 0`,
		strings.Join([]string{NewQueue, LegacyQueue}, "|")))
	if err != nil {
		return nil, fmt.Errorf("read the queues of pickers: %w", err)
	}
	var queues []Queue
	for _, s := range vector {
		model := cmp.Or(s.Labels["target_model_name"], s.Labels["model_name"])
		if model == "" || s.Labels["namespace"] == "" || math.IsNaN(s.Value) {
			continue
		}
		queues = append(queues, Queue{Namespace: s.Labels["namespace"], Pool: s.Labels["inference_pool"], Model: model})
	}
	return queues, nil
}
