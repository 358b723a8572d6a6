package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// refuseLabel is the label of objects to refuse; its value is the reason.
const refuseLabel = "fairlead.dev/refuse"

// admissionReview is the part of admission.k8s.io/v1 AdmissionReview that the webhook uses.
type admissionReview struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Request    *request  `json:"request,omitempty"`
	Response   *response `json:"response,omitempty"`
}

type request struct {
	UID    string          `json:"uid"`
	Object json.RawMessage `json:"object,omitempty"` // empty for a deletion
}

type response struct {
	UID     string  `json:"uid"`
	Allowed bool    `json:"allowed"`
	Status  *status `json:"status,omitempty"`
}

type status struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// review returns the reason why the webhook refuses an object, given as JSON, or nil if it admits the object.
type review func(ctx context.Context, object []byte) error

// answer returns a handler of AdmissionReviews. code is the status for a refused object.
func answer(review review, code int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in admissionReview
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil || in.Request == nil {
			http.Error(w, "invalid body: send an AdmissionReview with a request", http.StatusBadRequest)
			return
		}
		out := admissionReview{APIVersion: in.APIVersion, Kind: in.Kind, Response: &response{UID: in.Request.UID, Allowed: true}}
		if object := in.Request.Object; len(object) > 0 {
			if err := review(r.Context(), object); err != nil {
				out.Response.Allowed = false
				out.Response.Status = &status{Code: code, Message: err.Error()}
			}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(out) // fails only if the client has disconnected
	}
}

// refuseLabeled refuses an object with refuseLabel.
func refuseLabeled(_ context.Context, raw []byte) error {
	var object struct {
		Metadata struct {
			Labels map[string]string `json:"labels"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(raw, &object); err != nil {
		return fmt.Errorf("decode object: %w", err)
	}
	if reason, found := object.Metadata.Labels[refuseLabel]; found {
		return errors.New(reason)
	}
	return nil
}
