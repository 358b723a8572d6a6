package main

import (
	"encoding/json"
	"net/http"
)

// refuseLabel asks for a refusal; its value is the reason.
const refuseLabel = "fairlead.dev/refuse"

// admissionReview is the part of admission.k8s.io/v1 AdmissionReview that a verdict needs.
type admissionReview struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Request    *request  `json:"request,omitempty"`
	Response   *response `json:"response,omitempty"`
}

type request struct {
	UID    string `json:"uid"`
	Object struct {
		Metadata struct {
			Labels map[string]string `json:"labels"`
		} `json:"metadata"`
	} `json:"object"`
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

// review answers one AdmissionReview.
func review(w http.ResponseWriter, r *http.Request) {
	var in admissionReview
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil || in.Request == nil {
		http.Error(w, "the body is no AdmissionReview with a request", http.StatusBadRequest)
		return
	}
	out := admissionReview{APIVersion: in.APIVersion, Kind: in.Kind, Response: &response{UID: in.Request.UID, Allowed: true}}
	if reason, ok := in.Request.Object.Metadata.Labels[refuseLabel]; ok {
		out.Response.Allowed = false
		out.Response.Status = &status{Code: http.StatusForbidden, Message: reason}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out) // the API server has gone
}
