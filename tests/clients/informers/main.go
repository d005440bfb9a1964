// Command informers runs the informers of client-go and of controller-runtime as they are, with
// nothing of their own in the way, and prints one line of JSON.
//
// Whether they begin by a list or by a watch (WatchList) is said by client-go's own variable,
// KUBE_FEATURE_WatchListClient.
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
	kubeconfig string
	mode       string
	timeout    time.Duration
}

func main() {
	result, err := run(parse())
	if err != nil {
		fmt.Fprintln(os.Stderr, "informers:", err)
		os.Exit(1)
	}
	_ = json.NewEncoder(os.Stdout).Encode(result)
}

func parse() options {
	var o options
	flags := flag.NewFlagSet(os.Args[0], flag.ExitOnError) // controller-runtime has filled the usual one
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "the server that the informers follow")
	flags.StringVar(&o.mode, "mode", "time", "time")
	flags.DurationVar(&o.timeout, "timeout", time.Minute, "to give up after")
	_ = flags.Parse(os.Args[1:])
	return o
}

func run(o options) (any, error) {
	config, err := connect(o.kubeconfig)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), o.timeout)
	defer cancel()
	switch o.mode {
	case "time":
		return timePods(ctx, config)
	}
	return nil, fmt.Errorf("no mode %q", o.mode)
}

func connect(kubeconfig string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1 // the client's own limit of 5 requests a second only slows it down
	return rest.AddUserAgent(config, "informers"), nil
}
