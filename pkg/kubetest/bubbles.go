package kubetest

import utilruntime "k8s.io/apimachinery/pkg/util/runtime"

// DropErrorBackoff removes the error handler of apimachinery that sleeps between errors. It keeps the time of the last error for the whole
// process, and the clocks of synctest bubbles differ. TestMain calls it in packages whose informers fail in bubbles.
func DropErrorBackoff() { utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1] }
