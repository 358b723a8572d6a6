package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"go.etcd.io/etcd/server/v3/storage/wal"
	helmcmd "helm.sh/helm/v4/pkg/cmd"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json, as in upstream's main functions
	kubectlcmd "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// walSegment prevents etcd from preallocating two files of 64 MB, in bytes.
const walSegment = 8 << 20

func runEtcd([]string) error {
	wal.SegmentSizeBytes = walSegment
	etcdmain.Main(os.Args)
	return nil
}

func runAPIServer([]string) error {
	os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
	return nil
}

func runControllerManager([]string) error {
	os.Exit(cli.Run(controllermanager.NewControllerManagerCommand()))
	return nil
}

func runScheduler([]string) error {
	os.Exit(cli.Run(scheduler.NewSchedulerCommand()))
	return nil
}

func runProxy([]string) error {
	os.Exit(cli.Run(proxy.NewProxyCommand()))
	return nil
}

func runKubectl([]string) error {
	if err := cli.RunNoErrOutput(kubectlcmd.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err) // exits like kubectl
	}
	return nil
}

func runHelm(args []string) error {
	cmd, err := helmcmd.NewRootCmd(os.Stdout, args, helmcmd.SetupLogging)
	if err != nil {
		return err
	}
	return cmd.Execute()
}
