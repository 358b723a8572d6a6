// Package leader has one of several replicas do the writing, by a Lease.
//
// The others are warm: they take over within LeaseDuration and some RetryPeriods when the leader is gone without a word, and
// within two RetryPeriods when it ends in order, as it lets go of the Lease last. A replica that cannot renew its Lease stops
// writing before another may begin, and stands for election again; the process goes on.
package leader

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// namespaceFile is where a pod finds its namespace.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// Options says whether and how replicas elect one. The zero value elects nobody: every replica leads.
type Options struct {
	Elect         bool
	Namespace     string        // of the Lease; empty: that of the pod
	LeaseDuration time.Duration // without a sign of life, before another takes over; whole seconds, as Leases count in them
	RenewDeadline time.Duration // without renewal, before the leader gives up; less than LeaseDuration
	RetryPeriod   time.Duration // between renewals, and between attempts of the others; a fraction of RenewDeadline
}

// DefaultOptions returns times with which a leader that is killed is replaced within five seconds: another looks every
// RetryPeriod, drawn out by up to 1.2 times, sees the last renewal that much later, and as much later its end.
func DefaultOptions() Options {
	return Options{Elect: true, LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: 400 * time.Millisecond}
}

// AddFlags binds the options to the flags that every service has.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.Elect, "leader-elect", o.Elect, "Have one replica of several write, elected by a Lease. Off: each of them does.")
	fs.StringVar(&o.Namespace, "leader-election-namespace", o.Namespace, "Namespace of the Lease. Empty: that of the pod.")
	fs.DurationVar(&o.LeaseDuration, "leader-election-lease-duration", o.LeaseDuration,
		"How long the leader may give no sign of life before another replica takes over.")
	fs.DurationVar(&o.RenewDeadline, "leader-election-renew-deadline", o.RenewDeadline,
		"How long the leader tries to renew the Lease before it stops writing.")
	fs.DurationVar(&o.RetryPeriod, "leader-election-retry-period", o.RetryPeriod, "Time between attempts to renew or to take the Lease.")
}

// Validate names the flag with a value that cannot be used.
func (o Options) Validate() error {
	switch {
	case !o.Elect:
		return nil
	case o.RetryPeriod < time.Millisecond:
		return fmt.Errorf("--leader-election-retry-period %s is too short", o.RetryPeriod)
	case float64(o.RenewDeadline) <= leaderelection.JitterFactor*float64(o.RetryPeriod):
		return fmt.Errorf("--leader-election-renew-deadline %s leaves no time for a second attempt: give more than %g times --leader-election-retry-period %s",
			o.RenewDeadline, leaderelection.JitterFactor, o.RetryPeriod)
	case o.LeaseDuration%time.Second != 0:
		return fmt.Errorf("--leader-election-lease-duration %s is not in whole seconds", o.LeaseDuration)
	case o.LeaseDuration <= o.RenewDeadline:
		return fmt.Errorf("--leader-election-lease-duration %s must be longer than --leader-election-renew-deadline %s", o.LeaseDuration, o.RenewDeadline)
	}
	return nil
}

// Params is what New needs.
type Params struct {
	Options

	Name     string // of the Lease
	Identity string // of this replica; empty: the host's name and something random
	Leases   coordinationv1.LeasesGetter
	Log      *zap.Logger
	Metrics  prometheus.Registerer
}

// Elector stands for election.
type Elector struct {
	options Options
	name    string
	lock    *resourcelock.LeaseLock
	log     *zap.Logger
	leading prometheus.Gauge
}

// New returns an Elector that does nothing until Run.
func New(p Params) (*Elector, error) {
	leading := prometheus.NewGauge(prometheus.GaugeOpts{Name: "fairlead_leader", Help: "1 while this replica is the one that writes."})
	e := &Elector{options: p.Options, name: p.Name, log: p.Log, leading: leading}
	if p.Elect {
		namespace, err := namespaceOf(p.Options.Namespace, namespaceFile)
		if err != nil {
			return nil, err
		}
		if p.Identity == "" {
			host, err := os.Hostname()
			if err != nil {
				return nil, fmt.Errorf("find a name for this replica: %w", err)
			}
			p.Identity = host + "_" + rand.String(8) // a pod's containers may restart faster than its Lease ends
		}
		e.lock = &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: p.Name}, Client: p.Leases,
			LockConfig: resourcelock.ResourceLockConfig{Identity: p.Identity},
		}
	}
	p.Metrics.MustRegister(leading)
	return e, nil
}

// namespaceOf returns where the Lease is.
func namespaceOf(flag, file string) (string, error) {
	if flag != "" {
		return flag, nil
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return "", errors.New("not in a pod: give --leader-election-namespace, or --leader-elect=false")
	}
	if err != nil {
		return "", fmt.Errorf("find namespace of the Lease: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// Run calls lead whenever this replica is elected, until ctx ends. lead should return soon after ctx has ended, and at once
// when its own context has, which is as long as the lead: that of ctx's values, but not of its end. When lead returns
// first, that is the end of Run, too. The Lease is let go after lead has returned.
func (e *Elector) Run(ctx context.Context, lead func(lease context.Context)) error {
	defer e.leading.Set(0)
	if e.lock == nil {
		e.leading.Set(1)
		lead(context.WithoutCancel(ctx))
		return nil
	}
	for ctx.Err() == nil {
		if ended, err := e.stand(ctx, lead); ended || err != nil {
			return err
		}
	}
	return nil
}

// stand stands for election once, and leads if it is elected, until the lead is lost, or there is no need of it any more.
func (e *Elector) stand(ctx context.Context, lead func(lease context.Context)) (ended bool, err error) {
	term := &term{ctx: ctx, elector: e, lead: lead}
	election, resign := context.WithCancel(context.WithoutCancel(ctx))
	defer resign()
	term.resign = resign
	stopWaiting := context.AfterFunc(ctx, term.withdraw)
	defer stopWaiting()
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: e.name, Lock: e.lock, ReleaseOnCancel: true,
		LeaseDuration: e.options.LeaseDuration, RenewDeadline: e.options.RenewDeadline, RetryPeriod: e.options.RetryPeriod,
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: term.begin, OnStoppedLeading: func() {}},
	})
	if err != nil {
		return false, fmt.Errorf("stand for election: %w", err)
	}
	elector.Run(election)
	return term.end(), nil
}

// term is one time of leading, or of waiting for it.
type term struct {
	ctx     context.Context //nolint:containedctx // of Run; a term is as long as one call
	elector *Elector
	lead    func(lease context.Context)
	resign  context.CancelFunc

	mu      sync.Mutex
	over    bool          // ctx has ended while nobody led: too late to begin
	leading chan struct{} // closed when lead has returned; nil before it was called
	done    bool          // lead has returned by itself
}

// begin leads. It is called in a goroutine of its own.
func (t *term) begin(lease context.Context) {
	t.mu.Lock()
	if t.over {
		t.mu.Unlock()
		return
	}
	t.leading = make(chan struct{})
	t.mu.Unlock()
	defer close(t.leading)

	e := t.elector
	e.leading.Set(1)
	e.log.Info("Took the lead", zap.String("lease", e.lock.Describe()))
	t.lead(lease)
	e.leading.Set(0)
	if lease.Err() != nil {
		e.log.Warn("Lost the lead, stands for election again", zap.String("lease", e.lock.Describe()))
		return
	}
	t.done = true
	e.log.Info("Gave up the lead", zap.String("lease", e.lock.Describe()))
	t.resign()
}

// withdraw is called when ctx ends: who leads resigns when he is done.
func (t *term) withdraw() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.leading == nil {
		t.over = true
		t.resign()
	}
}

// end waits for the lead to be over, and reports whether it ended by itself.
func (t *term) end() bool {
	t.mu.Lock()
	t.over = true // elected at the last moment: it is not begun any more
	leading := t.leading
	t.mu.Unlock()
	if leading == nil {
		return false
	}
	<-leading
	return t.done
}
