//go:build system

package hermetic

import (
	"testing"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/stretchr/testify/assert"

	"fairlead.dev/services/endpoint-picker/test/envoytest"
)

// spellings are JSON strings of one name: plain, as PHP writes it, and as a client may write it to evade a rule.
var spellings = []string{`meta-llama/Llama&3`, `meta-llama\/Llama&3`, `\u006deta-llama\u002fLlama\u00263`}

// Rules, metrics and the server know a model by its name, however the client spells it. The client gets its own spelling back,
// however the server spells the other name.
func TestModelIsRewrittenHoweverItIsSpelled(t *testing.T) {
	t.Parallel()
	const target, name = "org/target&2", "meta-llama/Llama&3"
	r := start(t, world{
		pages:   []string{pageOf(0, 0, 0, "")},
		objects: map[string]map[string]object{pathRewrites: {"canary": rewriteTo(name, object{"modelRewrite": target})}},
	})
	served := []string{`org/target&2`, `org\/target&2`, `org/target\u00262`}
	for _, asked := range spellings {
		for _, spelled := range served {
			s := r.ask(request{body: `{"model":"` + asked + `","prompt":"x"}`, rules: envoytest.Rules{
				Upstream: []byte(`{"model":"org/target\u00262","prompt":"x"}`), Client: []byte(`{"model":"` + asked + `"}`), Remove: []string{"accept-encoding"},
			}})
			s.respond(response{pieces: []string{`{"model":"`, spelled, `"}`}})
			s.end()
		}
	}
	want := float64(len(spellings) * len(served))
	assert.Equal(t, want, r.metrics().sum("llm_d_epp_request_total", "model_name", name, "target_model_name", target), "one series")
}

func TestAdapterIsFoundHoweverItIsSpelled(t *testing.T) {
	t.Parallel()
	const config = `apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins: [{type: lora-affinity-scorer}]
schedulingProfiles: [{name: default, plugins: [{pluginRef: lora-affinity-scorer}]}]
`
	other := pageOf(0, 0, 0, "a,b,c,d")
	r := start(t, world{pages: []string{other, pageOf(0, 0, 0, "a,b,c,meta-llama/Llama&3"), other}, config: config})
	for _, spelling := range spellings {
		for range 10 {
			assert.Equal(t, r.at(1), r.serve(request{body: `{"model":"` + spelling + `","prompt":"x"}`}, response{pieces: completion}), spelling)
		}
	}
}

// A gateway that shows no path may show a body that begins with blanks.
func TestBlanksBeforeABodyWithoutAPath(t *testing.T) {
	t.Parallel()
	r := start(t, world{pages: []string{pageOf(0, 0, 0, "")}})
	s := r.open(envoytest.Rules{})
	s.send(envoytest.RequestHeaders(&extprocv3.HttpHeaders{Headers: envoytest.Headers("host", "models.example.com", "x-request-id", "id")}))
	s.send(envoytest.RequestBody(whole("\r\n\t " + `{"model":"m","prompt":"x"}`)))
	s.answered()
	s.end()
	assert.Equal(t, 1.0, r.metrics().sum("llm_d_epp_request_total", "model_name", "m"))
}
