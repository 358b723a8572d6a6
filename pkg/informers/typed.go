package informers

import "k8s.io/client-go/tools/cache"

// IndexBy returns a function of an index with the keys of objects of type T, such as *corev1.Pod. Others have no keys.
func IndexBy[T any](keys func(T) []string) cache.IndexFunc {
	return func(obj any) ([]string, error) {
		if typed, ok := obj.(T); ok {
			return keys(typed), nil
		}
		return nil, nil
	}
}

// CastObjects returns the objects of type T.
func CastObjects[T any](objects []any) []T {
	typed := make([]T, 0, len(objects))
	for _, obj := range objects {
		if t, ok := obj.(T); ok {
			typed = append(typed, t)
		}
	}
	return typed
}
