module fairlead.dev/deploy/emulators

go 1.26.0

require (
	fairlead.dev/pkg v0.0.0-00010101000000-000000000000
	github.com/spf13/pflag v1.0.10
	github.com/stretchr/testify v1.12.1
	go.uber.org/zap v1.28.0
)

replace fairlead.dev/pkg => ../../pkg
