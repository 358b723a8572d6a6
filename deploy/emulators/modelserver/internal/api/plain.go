package api

import (
	"encoding/json"
	"net/http"
	"time"

	"go.uber.org/zap"

	"fairlead.dev/deploy/emulators/modelserver/internal/faults"
	"fairlead.dev/deploy/emulators/modelserver/internal/metrics"
)

func (s *Server) listModels(w http.ResponseWriter, _ *http.Request) {
	list := modelList{Object: "list"}
	base := s.Models[0]
	for _, name := range s.Models {
		card := s.modelCard(name, base)
		card.MaxModelLen = &s.Spec.MaxModelLen
		list.Data = append(list.Data, card)
	}
	for _, name := range s.Adapters {
		card := s.modelCard(name, name)
		card.Parent = &base
		list.Data = append(list.Data, card)
	}
	writeJSON(w, http.StatusOK, list)
}

func (s *Server) modelCard(name, root string) modelCard {
	created := s.started.Unix()
	return modelCard{
		ID: name, Object: "model", Created: created, OwnedBy: "vllm", Root: root,
		Permission: []modelPermission{{
			ID: newID("modelperm-", ""), Object: "model_permission", Created: created,
			AllowSampling: true, AllowLogprobs: true, AllowView: true, Organization: "*",
		}},
	}
}

func (s *Server) tokenize(w http.ResponseWriter, r *http.Request) {
	ids, err := s.tokenizeBody(w, r)
	if err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, tokenizeResponse{Count: len(ids), MaxModelLen: s.Spec.MaxModelLen, Tokens: ids})
}

func (s *Server) tokenizeBody(w http.ResponseWriter, r *http.Request) ([]uint32, error) {
	body, err := readBody(w, r)
	if err != nil {
		return nil, err
	}
	var request tokenizeRequest
	if err := json.Unmarshal(body, &request); err != nil {
		return nil, decodeError(err)
	}
	if request.Model != nil {
		if err := s.checkModel(request.Model); err != nil {
			return nil, err
		}
	}
	if request.Messages != nil {
		return s.chatPrompt(request.Messages, nil)
	}
	text, err := contentText(request.Prompt)
	if err != nil {
		return nil, err
	}
	return s.Tokenizer.AppendText([]uint32{}, text), nil
}

// health is vLLM's liveness probe: 503 while the model loads, then 200 until the process exits. A real vLLM does not listen while
// the model loads.
func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	if s.state.Load() == stateLoading {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// ready is the readiness probe.
func (s *Server) ready(w http.ResponseWriter, _ *http.Request) {
	reason := ""
	switch state := s.state.Load(); {
	case state == stateLoading:
		reason = "model is loading"
	case state == stateDraining:
		reason = "server is draining"
	case s.Faults.Current().NotReady:
		reason = "fault notReady is set"
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if reason != "" {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte(reason + "\n")) // the prober may have disconnected
		return
	}
	_, _ = w.Write([]byte("ok\n")) // the prober may have disconnected
}

func (s *Server) version(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]string{"version": s.Version})
}

func (s *Server) metrics(w http.ResponseWriter, r *http.Request) {
	if s.Faults.Current().MetricsHang {
		s.hang(r)
	}
	page := s.frozen.Load()
	if page == nil {
		s.loop.occupy(s.Habits.PageTime)
		page = s.page()
	}
	w.Header().Set("Content-Type", metrics.ContentType)
	_, _ = w.Write(*page) // the scraper may have disconnected
}

func (s *Server) page() *[]byte {
	stats := s.Driver.Stats()
	page := s.Page.Append(nil, &stats, time.Now())
	return &page
}

func (s *Server) getFaults(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, s.Faults.Current())
}

func (s *Server) postFaults(w http.ResponseWriter, r *http.Request) {
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	decoder.DisallowUnknownFields()
	var set faults.Set
	if err := decoder.Decode(&set); err != nil {
		writeError(w, badRequest("", "decode faults: %s", err))
		return
	}
	if err := set.Validate(); err != nil {
		writeError(w, badRequest("", "%s", err))
		return
	}
	s.putFaults(set)
	writeJSON(w, http.StatusOK, set)
}

func (s *Server) deleteFaults(w http.ResponseWriter, _ *http.Request) {
	s.putFaults(faults.Set{})
	w.WriteHeader(http.StatusNoContent)
}

func (s *Server) putFaults(set faults.Set) {
	if set.StaleMetrics {
		s.frozen.CompareAndSwap(nil, s.page())
	} else {
		s.frozen.Store(nil)
	}
	s.Faults.Put(set)
	s.Driver.SetSlowdown(set.Slowdown())
	s.Log.Info("Changed faults", zap.Any("faults", set))
}
