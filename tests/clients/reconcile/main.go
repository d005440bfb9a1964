// Command reconcile runs a controller's loop over the ConfigMaps of a namespace, and counts what
// goes wrong in it: reads that do not see the loop's own writes, and conflicts.
//
// It is plain client-go, put together as controller-runtime does: an informer whose events fill a
// work queue, workers, and a reconcile that reads an object, changes it, and updates it at the
// resourceVersion that it read. It ends when each object has been reconciled -times, and prints
// one line of JSON.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

type options struct {
	kubeconfig      string
	watchKubeconfig string
	namespace       string
	mode            string
	client          string
	workers         int
	times           int
	timeout         time.Duration
}

func main() {
	result, err := run(parse())
	if err != nil {
		fmt.Fprintln(os.Stderr, "reconcile:", err)
		os.Exit(1)
	}
	_ = json.NewEncoder(os.Stdout).Encode(result)
}

func parse() options {
	var o options
	flag.StringVar(&o.kubeconfig, "kubeconfig", "", "the server that is read and written")
	flag.StringVar(&o.watchKubeconfig, "watch-kubeconfig", "", "the informer's server, if another")
	flag.StringVar(&o.namespace, "namespace", "", "the namespace whose ConfigMaps are reconciled")
	flag.StringVar(&o.mode, "mode", "proxy", "read from the `informer`, or by GET: proxy")
	flag.StringVar(&o.client, "client", "typed", "typed (protobuf) or dynamic (JSON)")
	flag.IntVar(&o.workers, "workers", 4, "reconciles at a time")
	flag.IntVar(&o.times, "times", 20, "reconciles of each object")
	flag.DurationVar(&o.timeout, "timeout", time.Minute, "to give up after")
	flag.Parse()
	if o.watchKubeconfig == "" {
		o.watchKubeconfig = o.kubeconfig
	}
	return o
}

func run(o options) (*Result, error) {
	objects, err := connect(o.kubeconfig, o)
	if err != nil {
		return nil, err
	}
	watched, err := connect(o.watchKubeconfig, o)
	if err != nil {
		return nil, err
	}
	informer := newInformer(watched)
	read, err := reader(o.mode, objects, informer, o.namespace)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), o.timeout)
	defer cancel()
	controller := newController(informer, newReconciler(read, objects.Update, o.times))
	return controller.Run(ctx, o.workers)
}

func connect(kubeconfig string, o options) (Objects, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1 // the servers are measured, not the client's own limit of 5 requests a second
	return newObjects(o.client, rest.AddUserAgent(config, "reconcile"), o.namespace)
}
