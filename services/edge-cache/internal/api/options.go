package api

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metascheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
)

// maxSelector limits the length of a selector: its evaluation takes time for each object.
const maxSelector = 4096

// maxWatchSeconds limits the time that a client can request for a watch.
const maxWatchSeconds = 24 * 3600

// listOptions are the query parameters of a list or a watch.
type listOptions struct {
	internalversion.ListOptions

	rv      uint64        // ResourceVersion; 0: not requested, or any
	timeout time.Duration // 0: not requested
}

// parseOptions returns the options of a query, or an error with the status that the API server gives.
func parseOptions(q url.Values) (listOptions, error) {
	o := listOptions{ListOptions: internalversion.ListOptions{LabelSelector: labels.Everything(), FieldSelector: fields.Everything()}}
	if len(q.Get("labelSelector")) > maxSelector || len(q.Get("fieldSelector")) > maxSelector {
		return o, badRequestError("a selector is longer than %d bytes", maxSelector)
	}
	if err := metascheme.ParameterCodec.DecodeParameters(q, metav1.SchemeGroupVersion, &o.ListOptions); err != nil {
		return o, badRequestError("unable to parse the query: %v", err)
	}
	seconds := ptr.Deref(o.TimeoutSeconds, 0)
	if o.Limit < 0 || seconds < 0 {
		return o, badRequestError("limit %d or timeoutSeconds %d is negative", o.Limit, seconds)
	}
	o.timeout = time.Duration(min(seconds, maxWatchSeconds)) * time.Second
	if errs := validation.ValidateListOptions(&o.ListOptions, true); len(errs) > 0 {
		return o, invalidOptions(errs)
	}
	if o.ResourceVersion != "" {
		var err error
		if o.rv, err = strconv.ParseUint(o.ResourceVersion, 10, 64); err != nil {
			return o, badRequestError("resourceVersion: Invalid value: %q: %v", o.ResourceVersion, err)
		}
	}
	return o, nil
}

// isTrue is the rule of the API server for boolean parameters: present, even if empty, and neither "0" nor "false".
func isTrue(q url.Values, name string) bool {
	return q.Has(name) && q.Get(name) != "0" && !strings.EqualFold(q.Get(name), "false")
}

// isExact reports whether a list must be of exactly its version.
func (o *listOptions) isExact() bool {
	return o.rv > 0 && (o.ResourceVersionMatch == metav1.ResourceVersionMatchExact || o.ResourceVersionMatch == "" && o.Limit > 0)
}

// wantsInitialEvents reports whether a watch begins with the objects of now.
func (o *listOptions) wantsInitialEvents() bool {
	return ptr.Deref(o.SendInitialEvents, o.rv == 0)
}

// marksInitialEnd reports whether a watch-list ends its initial events with a bookmark.
func (o *listOptions) marksInitialEnd() bool {
	return o.AllowWatchBookmarks && ptr.Deref(o.SendInitialEvents, false)
}

func badRequestError(format string, args ...any) error {
	return statusError(400, metav1.StatusReasonBadRequest, fmt.Sprintf(format, args...))
}
