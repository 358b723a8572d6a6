package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	clientfeatures "k8s.io/client-go/features"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	kubeletapp "k8s.io/kubernetes/cmd/kubelet/app"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	"k8s.io/kubernetes/pkg/kubelet"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	kubeletutil "k8s.io/kubernetes/pkg/kubelet/util"
	"k8s.io/kubernetes/pkg/kubelet/watchdog"
	"k8s.io/kubernetes/pkg/volume/util/hostutil"
	"sigs.k8s.io/yaml"

	"fairlead.dev/deploy/local/internal/components"
	"fairlead.dev/deploy/local/internal/cri"
	"fairlead.dev/deploy/local/internal/imagestore"
	"fairlead.dev/deploy/local/internal/network"
	"fairlead.dev/deploy/local/internal/nodeagent"
	"fairlead.dev/pkg/kubetest/clusterapi"
)

// runNode runs a machine: its services, and the real kubelet with replacements for the parts that would need cgroups, a
// container engine or real root.
func runNode([]string) error {
	m, err := nodeagent.Boot()
	if err != nil {
		return err
	}
	fs := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(fs)
	if err := fs.Set("v", fmt.Sprint(m.Config.Verbosity)); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := m.ServeServices(ctx); err != nil {
		return err
	}
	server, err := kubeletServer(m)
	if err != nil {
		return err
	}
	deps, err := kubeletDependencies(ctx, m, server)
	if err != nil {
		return err
	}
	if err := kubeletapp.RunKubelet(ctx, server, deps); err != nil {
		return fmt.Errorf("run kubelet: %w", err)
	}
	<-ctx.Done()
	return nil
}

// kubeletServer is the kubelet's configuration.
func kubeletServer(m *nodeagent.Machine) (*options.KubeletServer, error) {
	gates := map[string]bool{"KubeletInUserNamespace": true}
	if m.Config.Timings.CrashBackOffMax.Duration > 0 {
		gates["KubeletCrashLoopBackOffMax"] = true
	}
	if m.Node.Yurthub != "" {
		// Yurthub 1.7 accepts a watch with initial events while the API server is away, and sends none, so the kubelet would never know its
		// pods.
		gates[string(clientfeatures.WatchListClient)] = false
	}
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(gates); err != nil {
		return nil, fmt.Errorf("set feature gates: %w", err)
	}
	s, err := options.NewKubeletServer()
	if err != nil {
		return nil, fmt.Errorf("make kubelet options: %w", err)
	}
	s.HostnameOverride, s.NodeIP, s.NodeLabels = m.Node.Name, m.IP(), nodeLabels(m)
	s.RootDirectory, s.CertDirectory = filepath.Join(m.Dir(), "kubelet"), filepath.Join(m.Dir(), "kubelet", "pki")
	s.MaxPerPodContainerCount, s.MaxContainerCount, s.MinimumGCAge = 2, 200, metav1.Duration{Duration: time.Minute}
	if err := configureKubelet(m, &s.KubeletConfiguration); err != nil {
		return nil, err
	}
	for _, dir := range []string{s.RootDirectory, s.CertDirectory, s.PodLogsDir, s.VolumePluginDir, s.StaticPodPath} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func nodeLabels(m *nodeagent.Machine) map[string]string {
	labels := map[string]string{corev1.LabelTopologyZone: m.Node.Zone, corev1.LabelTopologyRegion: "local"}
	for k, v := range m.Node.Labels {
		labels[k] = v
	}
	return labels
}

func configureKubelet(m *nodeagent.Machine, c *kubeletconfig.KubeletConfiguration) error {
	pki := func(name string) string { return filepath.Join(components.PKIDir(m.Config.Dir), name) }
	c.PodLogsDir, c.VolumePluginDir = filepath.Join(m.Dir(), "logs"), filepath.Join(m.Dir(), "volume-plugins")
	c.StaticPodPath = clusterapi.StaticPodsDir(m.Config.Dir, m.Node.Name)
	c.Address, c.Port, c.ReadOnlyPort, c.HealthzPort = m.IP(), 10250, 0, 0
	c.EnableServer, c.RegisterNode = true, true
	c.TLSCertFile, c.TLSPrivateKeyFile = pki("kubelet-"+m.Node.Name+".crt"), pki("kubelet-"+m.Node.Name+".key")
	c.Authentication.X509.ClientCAFile = pki("ca.crt")
	c.Authentication.Anonymous.Enabled, c.Authentication.Webhook.Enabled = false, true
	c.Authorization.Mode = kubeletconfig.KubeletAuthorizationModeWebhook
	// No cgroups: nothing to reserve, to enforce or to evict.
	c.CgroupsPerQOS, c.EnforceNodeAllocatable, c.CgroupRoot = false, nil, ""
	c.EvictionHard, c.EvictionSoft = map[string]string{}, nil
	c.LocalStorageCapacityIsolation, c.MakeIPTablesUtilChains, c.FailSwapOn = false, false, false
	c.EnableControllerAttachDetach = true
	c.MaxPods = int32(m.Node.Pods)
	c.SerializeImagePulls, c.RegistryPullQPS = false, 0
	c.ResolverConfig, c.ClusterDNS, c.ClusterDomain = "", []string{network.ClusterDNS}, "cluster.local"
	c.ContainerRuntimeEndpoint = "unix:///in-process" // parsed, never dialed
	t := m.Config.Timings
	c.NodeStatusUpdateFrequency.Duration = min(10*time.Second, t.MonitorGracePeriod.Duration/2)
	c.NodeLeaseDurationSeconds = int32(t.LeaseDuration.Seconds())
	c.SyncFrequency = t.SyncFrequency
	if t.CrashBackOffMax.Duration > 0 {
		c.CrashLoopBackOff.MaxContainerRestartPeriod = &metav1.Duration{Duration: t.CrashBackOffMax.Duration}
	}
	for _, arg := range m.Config.Args[clusterapi.Kubelet] {
		name, value, _ := strings.Cut(arg, "=")
		if err := yaml.UnmarshalStrict([]byte(name+": "+value), c); err != nil {
			return fmt.Errorf("read kubelet argument %q (a field of KubeletConfiguration as name=value): %w", arg, err)
		}
	}
	return nil
}

// kubeletDependencies returns the real dependencies, except for the container manager, cAdvisor, the runtime and the
// clients.
func kubeletDependencies(ctx context.Context, m *nodeagent.Machine, s *options.KubeletServer) (*kubelet.Dependencies, error) {
	d, err := kubeletapp.UnsecuredDependencies(ctx, s, utilfeature.DefaultFeatureGate)
	if err != nil {
		return nil, fmt.Errorf("make kubelet dependencies: %w", err)
	}
	if err := connectKubelet(ctx, m, s, d); err != nil {
		return nil, err
	}
	runtime, err := cri.New(cri.Params{
		Images: imagestore.Open(m.Config.Images), Pulled: imagestore.Open(filepath.Join(m.Dir(), "images")), InsecureRegistries: m.Config.InsecureRegistries,
		Dir: m.Dir(), Shim: m.Shim, NodeIP: m.IP(), NodeIndex: m.Index, UserRange: m.UserRange, Cgroups: m.Cgroups,
	})
	if err != nil {
		return nil, fmt.Errorf("make container runtime: %w", err)
	}
	if err := runtime.Serve(ctx, nodeagent.RuntimeSocket); err != nil {
		return nil, err
	}
	d.RemoteRuntimeService, d.RemoteImageService = runtime, runtime
	d.CAdvisorInterface = &machineInfo{
		name: m.Node.Name, cores: m.Node.CPUs, memory: uint64(m.Node.MemoryGiB) << 30, dir: m.Dir(), boot: time.Now(),
	}
	extended := corev1.ResourceList{}
	for name, quantity := range m.Node.Extended {
		q, err := resource.ParseQuantity(quantity)
		if err != nil {
			return nil, fmt.Errorf("read extended resource %s of %s: %w", name, m.Node.Name, err)
		}
		extended[corev1.ResourceName(name)] = q
	}
	d.ContainerManager = cm.NewStubContainerManagerWithDevicePluginResource(extended)
	d.HostUtil = hostutil.NewHostUtil()
	logger := klog.FromContext(ctx)
	d.PodStartupLatencyTracker = kubeletutil.NewPodStartupLatencyTracker()
	d.NodeStartupLatencyTracker = kubeletutil.NewNodeStartupLatencyTracker(logger)
	if d.HealthChecker, err = watchdog.NewHealthChecker(logger); err != nil {
		return nil, fmt.Errorf("make health checker: %w", err)
	}
	return d, nil
}

// connectKubelet gives the kubelet its clients of the API server and its own authentication.
func connectKubelet(ctx context.Context, m *nodeagent.Machine, s *options.KubeletServer, d *kubelet.Dependencies) error {
	cfg, err := m.Client()
	if err != nil {
		return err
	}
	cfg.QPS, cfg.Burst = 100, 200
	_, agent, _ := strings.Cut(rest.DefaultKubernetesUserAgent(), "/")
	cfg.UserAgent = clusterapi.Kubelet + "/" + agent // a kubelet's own, which Yurthub looks at
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	heartbeat := rest.CopyConfig(cfg)
	heartbeat.QPS, heartbeat.Timeout = -1, min(10*time.Second, m.Config.Timings.LeaseDuration.Duration)
	heartbeatClient, err := kubernetes.NewForConfig(heartbeat)
	if err != nil {
		return err
	}
	d.KubeClient, d.EventClient, d.HeartbeatClient = client, client.CoreV1(), heartbeatClient
	auth, runAuth, err := kubeletapp.BuildAuth(types.NodeName(m.Node.Name), client, s.KubeletConfiguration)
	if err != nil {
		return fmt.Errorf("build kubelet authentication: %w", err)
	}
	runAuth(ctx.Done())
	d.Auth = auth
	return nil
}
