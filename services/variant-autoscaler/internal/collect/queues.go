package collect

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"strings"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// Names of the queue in the metrics of the picker. Releases have one of them, or both.
const (
	NewQueue    = "llm_d_epp_flow_control_queue_size"
	LegacyQueue = "inference_extension_flow_control_queue_size"
)

// ReadQueues returns the models of all namespaces for which requests wait in pickers. The pool of one is empty if the picker does not name
// it. One query for all of them is small: it returns only queues that are not empty.
func ReadQueues(ctx context.Context, q Querier) ([]snapshot.ModelKey, error) {
	vector, err := q.Query(ctx, fmt.Sprintf(`sum by (namespace, inference_pool, target_model_name, model_name) ({__name__=~"%s"}) > 0`,
		strings.Join([]string{NewQueue, LegacyQueue}, "|")))
	if err != nil {
		return nil, fmt.Errorf("read the queues of pickers: %w", err)
	}
	var queues []snapshot.ModelKey
	for _, s := range vector {
		model := cmp.Or(s.Labels["target_model_name"], s.Labels["model_name"])
		if model == "" || s.Labels["namespace"] == "" || math.IsNaN(s.Value) {
			continue
		}
		pool := snapshot.PoolKey{Namespace: s.Labels["namespace"], Name: s.Labels["inference_pool"]}
		queues = append(queues, pool.WithModel(model))
	}
	return queues, nil
}
