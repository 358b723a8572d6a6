package modelserver

import (
	"testing"

	"go.uber.org/goleak"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// deaf learns nothing of outliers.
type deaf struct{}

func (deaf) ScrapeRefused(*endpoint.Endpoint) {}
func (deaf) Scraped(*endpoint.Endpoint)       {}
