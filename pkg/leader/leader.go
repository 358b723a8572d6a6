// Package leader elects one of several replicas by a Lease, so that only one replica writes.
//
// The other replicas stay warm. They take over within LeaseDuration plus a few RetryPeriods after the leader crashes, and
// within two RetryPeriods after it shuts down, because it releases the Lease as its last step. A replica that cannot renew its
// Lease stops writing before another replica can start, and rejoins the election; its process continues.
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

// namespaceFile contains the namespace of the pod.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// Options configures leader election. With the zero value, every replica leads.
type Options struct {
	Elect         bool
	Namespace     string        // of the Lease; empty: the namespace of the pod
	LeaseDuration time.Duration // time without renewal after which another replica takes over; whole seconds, the unit of Leases
	RenewDeadline time.Duration // time without renewal after which the leader stops leading; less than LeaseDuration
	RetryPeriod   time.Duration // time between renewals, and between attempts to acquire the Lease; a fraction of RenewDeadline
}

// DefaultOptions returns times that replace a killed leader within five seconds. The other replicas get the Lease every
// RetryPeriod, with jitter at most every 2.2 RetryPeriods: they see the last renewal, and then its expiry, up to that much late.
func DefaultOptions() Options {
	return Options{Elect: true, LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: 400 * time.Millisecond}
}

// AddFlags binds the options to the flags that every service has.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.Elect, "leader-elect", o.Elect, "Elect one replica as the leader by a Lease; only the leader writes. If false, every replica writes.")
	fs.StringVar(&o.Namespace, "leader-election-namespace", o.Namespace, "Namespace of the Lease. Defaults to the namespace of the pod.")
	fs.DurationVar(&o.LeaseDuration, "leader-election-lease-duration", o.LeaseDuration,
		"Time without renewal of the Lease after which another replica takes over.")
	fs.DurationVar(&o.RenewDeadline, "leader-election-renew-deadline", o.RenewDeadline,
		"Time that the leader retries a failed renewal of the Lease before it stops writing.")
	fs.DurationVar(&o.RetryPeriod, "leader-election-retry-period", o.RetryPeriod, "Time between attempts to renew or acquire the Lease.")
}

// Validate returns an error that names the first flag with an invalid value.
func (o Options) Validate() error {
	switch {
	case !o.Elect:
		return nil
	case o.RetryPeriod < time.Millisecond:
		return fmt.Errorf("--leader-election-retry-period %s must be at least 1ms", o.RetryPeriod)
	case float64(o.RenewDeadline) <= leaderelection.JitterFactor*float64(o.RetryPeriod):
		return fmt.Errorf("--leader-election-renew-deadline %s must be longer than %g times --leader-election-retry-period %s, to leave time for a second attempt",
			o.RenewDeadline, leaderelection.JitterFactor, o.RetryPeriod)
	case o.LeaseDuration%time.Second != 0:
		return fmt.Errorf("--leader-election-lease-duration %s must be in whole seconds", o.LeaseDuration)
	case o.LeaseDuration <= o.RenewDeadline:
		return fmt.Errorf("--leader-election-lease-duration %s must be longer than --leader-election-renew-deadline %s", o.LeaseDuration, o.RenewDeadline)
	}
	return nil
}

// Params holds the arguments of New.
type Params struct {
	Options

	Name     string // of the Lease
	Identity string // of this replica; empty: the host name and a random suffix
	Leases   coordinationv1.LeasesGetter
	Log      *zap.Logger
	Metrics  prometheus.Registerer
}

// Elector takes part in leader election.
type Elector struct {
	options Options
	name    string
	lock    *renewals // nil if every replica leads
	log     *zap.Logger
	leading prometheus.Gauge
}

// New returns an Elector. It joins the election once Run is called.
func New(p Params) (*Elector, error) {
	leading := prometheus.NewGauge(prometheus.GaugeOpts{Name: "fairlead_leader", Help: "1 while this replica is the leader, 0 otherwise."})
	e := &Elector{options: p.Options, name: p.Name, log: p.Log, leading: leading}
	if p.Elect {
		namespace, err := namespaceOf(p.Options.Namespace, namespaceFile)
		if err != nil {
			return nil, err
		}
		if p.Identity == "" {
			host, err := os.Hostname()
			if err != nil {
				return nil, fmt.Errorf("determine identity of this replica: %w", err)
			}
			p.Identity = host + "_" + rand.String(8) // random: a restarted container has the same host name, and its previous Lease may still be valid
		}
		e.lock = &renewals{LeaseLock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: p.Name}, Client: p.Leases,
			LockConfig: resourcelock.ResourceLockConfig{Identity: p.Identity},
		}}
	}
	p.Metrics.MustRegister(leading)
	return e, nil
}

// PodNamespace returns the namespace of the pod, empty if the process does not run in one.
func PodNamespace() string {
	namespace, err := namespaceOf("", namespaceFile)
	if err != nil {
		return ""
	}
	return namespace
}

// namespaceOf returns the namespace of the Lease.
func namespaceOf(flag, file string) (string, error) {
	if flag != "" {
		return flag, nil
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return "", errors.New("not running in a pod: set --leader-election-namespace or --leader-elect=false")
	}
	if err != nil {
		return "", fmt.Errorf("read namespace of the pod: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// Check returns an error if another replica may lead: the Lease was not renewed within RenewDeadline. A process that was stopped, and
// continues, finds out here before its timers do. Call it immediately before a write whose effect a conflict does not prevent.
func (e *Elector) Check() error {
	if e.lock == nil {
		return nil
	}
	switch age := e.lock.renewalAge(); {
	case age < 0:
		return errors.New("this replica does not hold the Lease")
	case age > e.options.RenewDeadline:
		return fmt.Errorf("the Lease was renewed %s ago, which is longer than --leader-election-renew-deadline %s", age.Round(time.Millisecond), e.options.RenewDeadline)
	}
	return nil
}

// Run calls lead whenever this replica is elected, until ctx is canceled. The context of lead has the values of ctx, but is
// canceled when leadership is lost. lead must return immediately when its own context is canceled, and soon after ctx is
// canceled. Run releases the Lease after lead has returned. If lead returns before both, Run returns too.
func (e *Elector) Run(ctx context.Context, lead func(lease context.Context)) error {
	defer e.leading.Set(0)
	if e.lock == nil {
		e.leading.Set(1)
		lead(context.WithoutCancel(ctx))
		return nil
	}
	for ctx.Err() == nil {
		if ended, err := e.runElection(ctx, lead); ended || err != nil {
			return err
		}
	}
	return nil
}

// runElection joins the election once and leads if elected. It returns when leadership is lost or released, and reports
// whether lead returned by itself.
func (e *Elector) runElection(ctx context.Context, lead func(lease context.Context)) (ended bool, err error) {
	term := &term{ctx: ctx, elector: e, lead: lead}
	election, resign := context.WithCancel(context.WithoutCancel(ctx))
	defer resign()
	term.resign = resign
	stopWaiting := context.AfterFunc(ctx, term.withdrawTerm)
	defer stopWaiting()
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: e.name, Lock: e.lock, ReleaseOnCancel: true,
		LeaseDuration: e.options.LeaseDuration, RenewDeadline: e.options.RenewDeadline, RetryPeriod: e.options.RetryPeriod,
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: term.beginTerm, OnStoppedLeading: func() {}},
	})
	if err != nil {
		return false, fmt.Errorf("join leader election: %w", err)
	}
	elector.Run(election)
	return term.endTerm(), nil
}

// term is one participation in the election: waiting to be elected, then leading.
type term struct {
	ctx     context.Context //nolint:containedctx // the context of Run; a term lasts for one call
	elector *Elector
	lead    func(lease context.Context)
	resign  context.CancelFunc

	mu      sync.Mutex
	over    bool          // the term ended before begin: do not call lead
	leading chan struct{} // closed when lead has returned; nil before lead is called
	done    bool          // lead has returned by itself
}

// beginTerm calls lead. The election calls begin in a separate goroutine.
func (t *term) beginTerm(lease context.Context) {
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
	e.log.Info("Became leader", zap.String("lease", e.lock.Describe()))
	t.lead(lease)
	e.leading.Set(0)
	if lease.Err() != nil {
		e.log.Warn("Lost leadership, rejoining the election", zap.String("lease", e.lock.Describe()))
		return
	}
	t.done = true
	e.log.Info("Stopped leading, releasing the Lease", zap.String("lease", e.lock.Describe()))
	t.resign()
}

// withdrawTerm resigns if lead was not called yet. It runs when ctx is canceled; a leader resigns after lead has returned.
func (t *term) withdrawTerm() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.leading == nil {
		t.over = true
		t.resign()
	}
}

// endTerm waits for lead to return, and reports whether it returned by itself.
func (t *term) endTerm() bool {
	t.mu.Lock()
	t.over = true // a begin that is scheduled but has not started must not call lead
	leading := t.leading
	t.mu.Unlock()
	if leading == nil {
		return false
	}
	<-leading
	return t.done
}
