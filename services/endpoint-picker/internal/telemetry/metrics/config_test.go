package metrics

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestConfig(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	c := NewConfig(r)
	c.ConfigLoaded("default")
	c.ConfigLoaded("0123456789ab")
	c.ConfigFailed()
	assertMetrics(t, r, `
# HELP fairlead_picker_config_info The active configuration of the plugins, by the hash of its text.
# TYPE fairlead_picker_config_info gauge
fairlead_picker_config_info{hash="0123456789ab"} 1
# HELP fairlead_picker_config_last_reload_successful 1 if the last text of the configuration and its files are active, 0 if they were rejected.
# TYPE fairlead_picker_config_last_reload_successful gauge
fairlead_picker_config_last_reload_successful 0
`)
	c.ConfigLoaded("0123456789ab")
	assertMetrics(t, r, `
# HELP fairlead_picker_config_last_reload_successful 1 if the last text of the configuration and its files are active, 0 if they were rejected.
# TYPE fairlead_picker_config_last_reload_successful gauge
fairlead_picker_config_last_reload_successful 1
`, "fairlead_picker_config_last_reload_successful")
}
