package lanes

func TestFirst(t *testing.T) {
	net.Listen("tcp", "127.0.0.1:0")                      // want net.Listen
	s := httptest.NewServer(nil)                          // want httptest.NewServer
	time.Sleep(1)                                         // want time.Sleep
	assert.Less(t, time.Since(begun), 1)                  // want time.Since
	assert.Less(t, time.Now().Sub(begun), 1)              // want time.Now().Sub
	require.Eventually(t, f, 20*time.Second, 1)           // want require.Eventually
	require.Eventually(t, f, kubetest.Patience, 1)        // bounded
	context.WithTimeout(t.Context(), time.Second)         // want context.WithTimeout
	context.WithTimeout(t.Context(), 2*kubetest.Patience) // bounded
	select {
	case <-done:
	case <-time.After(kubetest.Patience): // bounded
	case <-time.After(time.Second): // want time.After
	}
	mixed()
}

func TestBubble(t *testing.T) {
	tests := []struct{ wait func() }{{wait: func() { time.Sleep(1) }}}
	t.Run("inside", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(1)
			require.Eventually(t, f, 20*time.Second, 1)
			helper()
			mixed()
			net.Listen("tcp", "127.0.0.1:0") // want net.Listen
			serve(&fake{})
		})
	})
	t.Run("outside", func(t *testing.T) {
		time.Sleep(1) // want time.Sleep
	})
}

// helper is used in bubbles only, by another helper, too.
func helper() {
	time.Sleep(1)
	inner()
}

func inner() {
	time.Since(begun)
	helper()
}

func mixed() {
	time.Sleep(1) // want time.Sleep
}

type fake struct{}

// Serve is called by the code under test.
func (*fake) Serve() { time.Sleep(1) }

// inBubble runs a function in a bubble.
func inBubble(t *testing.T, f func(t *testing.T)) {
	synctest.Test(t, f)
}

func inModes(t *testing.T, f func(t *testing.T)) {
	t.Run("mode", func(t *testing.T) { inBubble(t, f) })
}

func TestRunners(t *testing.T) {
	inBubble(t, func(t *testing.T) { time.Sleep(1) })
	inModes(t, func(t *testing.T) {
		time.Sleep(1)
		onlyInRunners()
	})
	inModes(t, named)
	other(t, func(t *testing.T) { time.Sleep(1) }) // want time.Sleep
}

func TestNamed(t *testing.T) { synctest.Test(t, named) }

func named(t *testing.T) { time.Sleep(1) }

func onlyInRunners() { time.Since(begun) }

func other(t *testing.T, f func(t *testing.T)) { f(t) }

// measure is used by a benchmark.
func measure() time.Duration { return time.Since(begun) }

func BenchmarkFirst(b *testing.B) {
	begun := time.Now()
	measure()
	b.ReportMetric(time.Since(begun).Seconds(), "s")
}

func TestParallel(t *testing.T) {
	t.Run("case", func(t *testing.T) {
		t.Parallel()
		used() // want used
		f.used()
	})
	testing.Benchmark(nil) // want Benchmark
}

func TestAlone(t *testing.T) {
	runtime.ReadMemStats(nil)
	used()
}

func used() int {
	runtime.ReadMemStats(nil)
	return 1
}
