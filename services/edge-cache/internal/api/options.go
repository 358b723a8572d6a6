package api

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxSelector limits the length of a selector: its evaluation takes time for each object.
const maxSelector = 4096

// listOptions are the query parameters of a list or a watch.
type listOptions struct {
	watch             bool
	rv                uint64
	rvText            string
	match             metav1.ResourceVersionMatch
	sendInitialEvents *bool
	bookmarks         bool
	timeout           time.Duration // 0: not requested
	limit             int
	continueToken     string
	label             labels.Selector
	field             fields.Selector
}

// parseOptions returns the options of a query, or an error with the status that the API server gives.
func parseOptions(q url.Values) (listOptions, error) {
	o := listOptions{
		watch: isTrue(q, "watch"), rvText: q.Get("resourceVersion"), match: metav1.ResourceVersionMatch(q.Get("resourceVersionMatch")),
		bookmarks: isTrue(q, "allowWatchBookmarks"), continueToken: q.Get("continue"),
	}
	var err error
	if q.Has("sendInitialEvents") {
		value := isTrue(q, "sendInitialEvents")
		o.sendInitialEvents = &value
	}
	if err := o.parseNumbers(q); err != nil {
		return o, err
	}
	label, fieldText := q.Get("labelSelector"), q.Get("fieldSelector")
	if len(label) > maxSelector || len(fieldText) > maxSelector {
		return o, badRequestError("a selector is longer than %d bytes", maxSelector)
	}
	if o.label, err = labels.Parse(label); err != nil {
		return o, badRequestError("unable to parse labelSelector: %v", err)
	}
	if o.field, err = fields.ParseSelector(fieldText); err != nil {
		return o, badRequestError("unable to parse fieldSelector: %v", err)
	}
	if errs := o.validateOptions(); len(errs) > 0 {
		return o, invalidOptions(errs)
	}
	if o.rvText != "" {
		if o.rv, err = strconv.ParseUint(o.rvText, 10, 64); err != nil {
			return o, badRequestError("resourceVersion: Invalid value: %q: %v", o.rvText, err)
		}
	}
	return o, nil
}

func (o *listOptions) parseNumbers(q url.Values) error {
	seconds, err := parseCount(q, "timeoutSeconds", "seconds")
	if err != nil {
		return err
	}
	o.timeout = time.Duration(min(seconds, 24*3600)) * time.Second
	o.limit, err = parseCount(q, "limit", "objects")
	return err
}

// parseCount returns a parameter that is a number, 0 without it.
func parseCount(q url.Values, name, unit string) (int, error) {
	text := q.Get(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, badRequestError("%s %q is not a number of %s", name, text, unit)
	}
	return n, nil
}

// isTrue is the rule of the API server for boolean parameters: present, even if empty, and neither "0" nor "false".
func isTrue(q url.Values, name string) bool {
	return q.Has(name) && q.Get(name) != "0" && !strings.EqualFold(q.Get(name), "false")
}

// validateOptions applies the rules of ValidateListOptions.
func (o *listOptions) validateOptions() field.ErrorList {
	path := field.NewPath("resourceVersionMatch")
	if o.watch {
		return o.validateWatch(path)
	}
	var errs field.ErrorList
	if o.sendInitialEvents != nil {
		errs = append(errs, field.Forbidden(field.NewPath("sendInitialEvents"), "sendInitialEvents is forbidden for list"))
	}
	if o.match == "" {
		return errs
	}
	if o.rvText == "" {
		errs = append(errs, field.Forbidden(path, "resourceVersionMatch is forbidden unless resourceVersion is provided"))
	}
	if o.continueToken != "" {
		errs = append(errs, field.Forbidden(path, "resourceVersionMatch is forbidden when continue is provided"))
	}
	if o.match != metav1.ResourceVersionMatchExact && o.match != metav1.ResourceVersionMatchNotOlderThan {
		errs = append(errs, field.NotSupported(path, o.match, []string{
			string(metav1.ResourceVersionMatchExact), string(metav1.ResourceVersionMatchNotOlderThan), "",
		}))
	}
	if o.match == metav1.ResourceVersionMatchExact && o.rvText == "0" {
		errs = append(errs, field.Forbidden(path, "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""))
	}
	return errs
}

func (o *listOptions) validateWatch(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if o.sendInitialEvents == nil {
		if o.match != "" {
			errs = append(errs, field.Forbidden(path, "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"))
		}
		return errs
	}
	if o.match == "" {
		errs = append(errs, field.Forbidden(path, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"))
	} else if o.match != metav1.ResourceVersionMatchNotOlderThan {
		errs = append(errs, field.NotSupported(path, o.match, []string{string(metav1.ResourceVersionMatchNotOlderThan)}))
	}
	if o.continueToken != "" {
		errs = append(errs, field.Forbidden(path, "resourceVersionMatch is forbidden when continue is provided"))
	}
	return errs
}

// isExact reports whether a list must be of exactly its version.
func (o *listOptions) isExact() bool {
	return o.rv > 0 && (o.match == metav1.ResourceVersionMatchExact || o.match == "" && o.limit > 0)
}

// wantsInitialEvents reports whether a watch begins with the objects of now.
func (o *listOptions) wantsInitialEvents() bool {
	if o.sendInitialEvents != nil {
		return *o.sendInitialEvents
	}
	return o.rv == 0
}

// marksInitialEnd reports whether a watch-list ends its initial events with a bookmark.
func (o *listOptions) marksInitialEnd() bool {
	return o.bookmarks && o.sendInitialEvents != nil && *o.sendInitialEvents
}

func badRequestError(format string, args ...any) error {
	return statusError(400, metav1.StatusReasonBadRequest, fmt.Sprintf(format, args...))
}
