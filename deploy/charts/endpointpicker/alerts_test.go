package endpointpicker_test

import (
	"fmt"
	"testing"
	"time"

	"fairlead.dev/deploy/charts/internal/alerts"
)

// cases: the series of a few replicas, one sample each minute, and the labels of the alerts that fire.
var cases = []alerts.Case{
	{Alert: "EndpointPickerDown", Name: "nothing is scraped", At: 10 * time.Minute, Want: []string{`{}`}},
	{Alert: "EndpointPickerDown", Name: "one replica is left", Series: []string{`fairlead_picker_config_last_reload_successful{job="p"} 0x20`}, At: 20 * time.Minute},
	{
		Alert: "EndpointPickerNoEndpoints", Name: "on all replicas", At: 10 * time.Minute,
		Series: []string{`fairlead_picker_endpoints_ready{job="p", pod="a"} 0x20`, `fairlead_picker_endpoints_ready{job="p", pod="b"} 0x20`, `fairlead_picker_picks_total{job="p", result="no_endpoints"} 0+1x20`},
		Want:   []string{`{job="p"}`},
	},
	{
		Alert: "EndpointPickerNoEndpoints", Name: "scaled to zero, and nobody asks", At: 10 * time.Minute,
		Series: []string{`fairlead_picker_endpoints_ready{job="p", pod="a"} 0x20`, `fairlead_picker_picks_total{job="p", result="no_endpoints"} 7x20`, `fairlead_picker_picks_total{job="p", result="picked"} 0+1x20`},
	},
	{
		Alert: "EndpointPickerNoEndpoints", Name: "a replica that starts", At: 10 * time.Minute,
		Series: []string{`fairlead_picker_endpoints_ready{job="p", pod="a"} 0x20`, `fairlead_picker_endpoints_ready{job="p", pod="b"} 3x20`, `fairlead_picker_picks_total{job="p", result="no_endpoints"} 0+1x20`},
	},
	{
		Alert: "EndpointPickerNoEndpoints", Name: "one of two pools", At: 10 * time.Minute,
		Series: []string{`fairlead_picker_endpoints_ready{job="p", pool="ns/a"} 0x20`, `fairlead_picker_endpoints_ready{job="p", pool="ns/b"} 3x20`, `fairlead_picker_picks_total{job="p", pool="ns/a", result="no_endpoints"} 0+1x20`},
		Want:   []string{`{job="p", pool="ns/a"}`},
	},
	{
		Alert: "EndpointPickerRequestsRejected", Name: "a tenth", At: 20 * time.Minute,
		Series: []string{`fairlead_picker_picks_total{job="p", result="picked"} 0+90x30`, `fairlead_picker_picks_total{job="p", result="no_endpoints"} 0+10x30`},
		Want:   []string{`{job="p"}`},
	},
	{
		Alert: "EndpointPickerRequestsRejected", Name: "a hundredth", At: 20 * time.Minute,
		Series: []string{`fairlead_picker_picks_total{job="p", result="picked"} 0+99x30`, `fairlead_picker_picks_total{job="p", result="no_endpoints"} 0+1x30`},
	},
	{
		Alert: "EndpointPickerRequestsRejected", Name: "no requests", At: 20 * time.Minute,
		Series: []string{`fairlead_picker_picks_total{job="p", result="picked"} 7x30`, `fairlead_picker_picks_total{job="p", result="no_endpoints"} 0x30`},
	},
	{
		Alert: "EndpointPickerScrapesFailing", Name: "an endpoint, for all replicas", At: 30 * time.Minute,
		Series: []string{
			`fairlead_picker_endpoint_scrape_failures_total{job="p", pod="a", endpoint="metrics", exported_endpoint="10.0.0.1:8000"} 0+60x40`,
			`fairlead_picker_endpoint_scrape_failures_total{job="p", pod="b", endpoint="metrics", exported_endpoint="10.0.0.1:8000"} 0+60x40`,
			`fairlead_picker_endpoint_scrape_failures_total{job="p", pod="a", endpoint="metrics", exported_endpoint="10.0.0.2:8000"} 0x40`,
		},
		Want: []string{`{endpoint="metrics", exported_endpoint="10.0.0.1:8000", job="p"}`},
	},
	{
		Alert: "EndpointPickerScrapesFailing", Name: "without the operator", At: 30 * time.Minute,
		Series: []string{`fairlead_picker_endpoint_scrape_failures_total{job="p", endpoint="10.0.0.1:8000"} 0+60x40`},
		Want:   []string{`{endpoint="10.0.0.1:8000", job="p"}`},
	},
	{
		Alert: "EndpointPickerScrapesFailing", Name: "for one replica alone", At: 30 * time.Minute,
		Series: []string{
			`fairlead_picker_endpoint_scrape_failures_total{job="p", pod="a", exported_endpoint="10.0.0.1:8000"} 0+60x40`,
			`fairlead_picker_endpoint_scrape_failures_total{job="p", pod="b", exported_endpoint="10.0.0.1:8000"} 3x40`,
		},
	},
	{
		Alert: "EndpointPickerEndpointFailing", Name: "one of two", At: 30 * time.Minute,
		Series: []string{
			`fairlead_picker_endpoint_responses_total{job="p", pod="a", endpoint="metrics", exported_endpoint="10.0.0.1:8000", result="answered"} 0+40x40`,
			`fairlead_picker_endpoint_responses_total{job="p", pod="a", endpoint="metrics", exported_endpoint="10.0.0.1:8000", result="5xx"} 0+4x40`,
			`fairlead_picker_endpoint_responses_total{job="p", pod="b", endpoint="metrics", exported_endpoint="10.0.0.1:8000", result="none"} 0+4x40`,
			`fairlead_picker_endpoint_responses_total{job="p", pod="a", endpoint="metrics", exported_endpoint="10.0.0.2:8000", result="answered"} 0+40x40`,
			`fairlead_picker_endpoint_responses_total{job="p", pod="a", endpoint="metrics", exported_endpoint="10.0.0.2:8000", result="5xx"} 0+4x40`,
		},
		Want: []string{`{endpoint="metrics", exported_endpoint="10.0.0.1:8000", job="p"}`},
	},
	{
		Alert: "EndpointPickerEndpointFailing", Name: "clients leave, or ask for what there is not", At: 30 * time.Minute,
		Series: []string{
			`fairlead_picker_endpoint_responses_total{job="p", endpoint="10.0.0.1:8000", result="incomplete"} 0+40x40`,
			`fairlead_picker_endpoint_responses_total{job="p", endpoint="10.0.0.1:8000", result="4xx"} 0+40x40`,
			`fairlead_picker_endpoint_responses_total{job="p", endpoint="10.0.0.1:8000", result="5xx"} 7x40`,
		},
	},
	{
		Alert: "EndpointPickerConfigInvalid", Name: "on one replica", At: 10 * time.Minute,
		Series: []string{`fairlead_picker_config_last_reload_successful{job="p", pod="a"} 1x20`, `fairlead_picker_config_last_reload_successful{job="p", pod="b"} 0x20`},
		Want:   []string{`{job="p"}`},
	},
	{
		Alert: "EndpointPickerConfigInvalid", Name: "for a moment", At: 10 * time.Minute,
		Series: []string{`fairlead_picker_config_last_reload_successful{job="p"} 1x7 0x10`},
	},
	{
		Alert: "EndpointPickerCertificateExpiring", Name: "in an hour", At: 20 * time.Minute,
		Series: []string{`fairlead_picker_certificate_expiry_timestamp_seconds{job="p", server="ext_proc"} 4800x40`},
		Want:   []string{`{job="p", server="ext_proc"}`},
	},
	{
		Alert: "EndpointPickerCertificateExpiring", Name: "in a month", At: 20 * time.Minute,
		Series: []string{`fairlead_picker_certificate_expiry_timestamp_seconds{job="p", server="ext_proc"} 2600000x40`},
	},
	{
		Alert: "EndpointPickerLimitReached", Name: "of streams", At: 20 * time.Minute,
		Series: []string{`fairlead_picker_gateway_limited_total{job="p", pod="a", limit="streams"} 0+30x30`, `fairlead_picker_gateway_limited_total{job="p", pod="b", limit="bytes"} 0x30`},
		Want:   []string{`{job="p", limit="streams"}`},
	},
	{
		Alert: "EndpointPickerLimitReached", Name: "once", At: 20 * time.Minute,
		Series: []string{`fairlead_picker_gateway_limited_total{job="p", limit="streams"} 0x18 1x20`},
	},
	{
		Alert: "EndpointPickerEndpointsFileInvalid", Name: "on one replica", At: 10 * time.Minute,
		Series: []string{`fairlead_picker_endpoints_file_last_reload_successful{job="p", pod="a"} 1x20`, `fairlead_picker_endpoints_file_last_reload_successful{job="p", pod="b"} 0x20`},
		Want:   []string{`{job="p"}`},
	},
	{Alert: "EndpointPickerEndpointsFileInvalid", Name: "valid", At: 10 * time.Minute, Series: []string{`fairlead_picker_endpoints_file_last_reload_successful{job="p"} 1x20`}},
	{
		Alert: "EndpointPickerPoolRefused", Name: "by an older pool", At: 10 * time.Minute,
		Series: []string{`fairlead_picker_pools_refused{job="p", pod="a", reason="conflict"} 2x20`, `fairlead_picker_pools_refused{job="p", pod="a", reason="limit"} 0x20`},
		Want:   []string{`{job="p", reason="conflict"}`},
	},
	{Alert: "EndpointPickerPoolRefused", Name: "none", At: 10 * time.Minute, Series: []string{`fairlead_picker_pools_refused{job="p", reason="limit"} 0x20`}},
	{
		Alert: "EndpointPickerRecordingIncomplete", Name: "on a full disk", At: 30 * time.Minute,
		Series: []string{`fairlead_picker_recording_lost_requests_total{job="p", reason="file"} 0+6x40`},
		Want:   []string{`{job="p", reason="file"}`},
	},
	{
		Alert: "EndpointPickerRecordingIncomplete", Name: "requests without a prompt", At: 30 * time.Minute,
		Series: []string{`fairlead_picker_recording_lost_requests_total{job="p", reason="prompt"} 0+6x40`, `fairlead_picker_recording_lost_requests_total{job="p", reason="file"} 3x40`},
	},
	{
		Alert: "EndpointPickerReplicaSyncDegraded", Name: "one of three is cut off", At: 30 * time.Minute,
		Series: []string{
			`fairlead_picker_replicas_heard{job="p", pod="a", pool="ns/x"} 2x10 1x40`, `fairlead_picker_replicas_heard{job="p", pod="b", pool="ns/x"} 2x10 1x40`,
			`fairlead_picker_replicas_heard{job="p", pod="c", pool="ns/x"} 2x10 0x40`, `fairlead_picker_replicas_heard{job="p", pod="a", pool="ns/y"} 0x50`,
		},
		Want: []string{`{job="p", pool="ns/x"}`},
	},
	{
		Alert: "EndpointPickerReplicaSyncDegraded", Name: "all hear each other", At: 30 * time.Minute,
		Series: []string{`fairlead_picker_replicas_heard{job="p", pod="a"} 1x50`, `fairlead_picker_replicas_heard{job="p", pod="b"} 1x50`},
	},
	{
		Alert: "EndpointPickerReplicaSyncDegraded", Name: "a roll-out", At: 30 * time.Minute,
		Series: []string{`fairlead_picker_replicas_heard{job="p", pod="a"} 1x18 0x4 1x30`, `fairlead_picker_replicas_heard{job="p", pod="b"} 1x18 0x4 1x30`},
	},
	{Alert: "EndpointPickerReplicaSyncDegraded", Name: "one replica", At: 30 * time.Minute, Series: []string{`fairlead_picker_replicas_heard{job="p", pod="a"} 0x50`}},
	{
		Alert: "EndpointPickerReplicaSyncDegraded", Name: "replicas that share nothing", At: 30 * time.Minute,
		Series: []string{`fairlead_picker_endpoints_ready{job="p", pod="a"} 3x50`, `fairlead_picker_endpoints_ready{job="p", pod="b"} 3x50`},
	},
	{
		Alert: "EndpointPickerHitRatesDiffer", Name: "more is expected than reported", At: 110 * time.Minute, Series: hitRates(60_000, 60, 50),
		Want: []string{`{exported_endpoint="10.0.0.1:8000", job="p"}`},
	},
	{
		Alert: "EndpointPickerHitRatesDiffer", Name: "more is reported than expected", At: 110 * time.Minute, Series: hitRates(60_000, 50, 60),
		Want: []string{`{exported_endpoint="10.0.0.1:8000", job="p"}`},
	},
	{Alert: "EndpointPickerHitRatesDiffer", Name: "for half an hour", At: 50 * time.Minute, Series: hitRates(60_000, 60, 50)},
	{Alert: "EndpointPickerHitRatesDiffer", Name: "by four points", At: 110 * time.Minute, Series: hitRates(60_000, 54, 50)},
	{Alert: "EndpointPickerHitRatesDiffer", Name: "with hardly any traffic", At: 110 * time.Minute, Series: hitRates(1000, 60, 10)},
	{Alert: "EndpointPickerHitRatesDiffer", Name: "without traffic", At: 110 * time.Minute, Series: hitRates(0, 0, 0)},
}

// hitRates are the series of a server with so many prompt tokens in each minute, and these parts of them, in percent.
func hitRates(tokens, expected, reported int) []string {
	const labels = `{job="p", pod=%q, exported_endpoint="10.0.0.1:8000"} 0+%dx120`
	var series []string
	for _, pod := range []string{"a", "b"} { // the server is one for both replicas
		series = append(series,
			fmt.Sprintf(`fairlead_picker_endpoint_prefix_prompt_tokens_total`+labels, pod, tokens/2),
			fmt.Sprintf(`fairlead_picker_endpoint_prefix_expected_tokens_total`+labels, pod, tokens*expected/200),
			fmt.Sprintf(`fairlead_picker_endpoint_prefix_reported_tokens_total`+labels, pod, tokens*reported/200))
	}
	return series
}

func TestAlertsFire(t *testing.T) {
	t.Parallel()
	alerts.AssertFire(t, alerts.Read(t, chart), cases)
}
