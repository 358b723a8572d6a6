package kubetest

import (
	"go.uber.org/goleak"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// VerifyTestMain is that of goleak, for packages whose informers fail in synctest bubbles. It drops the error handler of apimachinery that sleeps:
// the handler keeps the time of the last error for the whole process, and the clocks of bubbles differ.
func VerifyTestMain(m goleak.TestingM) {
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	goleak.VerifyTestMain(m)
}
