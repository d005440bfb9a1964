// Command informers runs informers of client-go and of controller-runtime as they are, with nothing
// of its own between them and a server.
//
// It prints "synced" once they hold everything there is, and follows until it reads a line. Then it
// compares what they hold with what the API server lists, until both are the same or the time is
// up, and prints one line of JSON.
//
// Whether informers begin by a list or by a watch is said by client-go's own variable,
// KUBE_FEATURE_WatchListClient.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

type options struct {
	kubeconfig string
	truth      string
	mode       string
	custom     string
	customKind string
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
	flags := flag.NewFlagSet(os.Args[0], flag.ExitOnError) // controller-runtime has flags in the usual one
	klog.InitFlags(flags)
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "the server that the informers follow")
	flags.StringVar(&o.truth, "truth-kubeconfig", "", "the API server, which they are compared with")
	flags.StringVar(&o.mode, "mode", "", "typed-json, typed-protobuf, dynamic, metadata, manager, or time: "+
		"only tell how long all pods take")
	flags.StringVar(&o.custom, "custom", "", "a custom resource, as `plural.version.group`")
	flags.StringVar(&o.customKind, "custom-kind", "", "and its kind")
	flags.DurationVar(&o.timeout, "timeout", time.Minute, "to give up after, for each step")
	_ = flags.Parse(os.Args[1:])
	return o
}

func run(o options) (any, error) {
	config, err := connect(o.kubeconfig)
	if err != nil {
		return nil, err
	}
	if o.mode == "time" {
		return withTimeout(o.timeout, func(ctx context.Context) (any, error) { return timePods(ctx, config) })
	}
	truth, err := connect(o.truth)
	if err != nil {
		return nil, err
	}
	followed, err := follow(o, config, truth)
	if err != nil {
		return nil, err
	}
	fmt.Println("synced")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n') // its end will do, too: nobody is there any more
	return withTimeout(o.timeout, func(ctx context.Context) (any, error) { return compare(ctx, followed) })
}

// follow starts informers, and returns what they hold once that is everything.
func follow(o options, config, truth *rest.Config) ([]collection, error) {
	custom, err := parseCustom(o.custom, o.customKind)
	if err != nil {
		return nil, err
	}
	follower, err := newFollower(o.mode, config, truth, custom)
	if err != nil {
		return nil, err
	}
	follower.Start(context.Background())
	return withTimeout(o.timeout, func(ctx context.Context) ([]collection, error) {
		return follower.Collections(), follower.WaitForSync(ctx)
	})
}

func newFollower(mode string, config, truth *rest.Config, custom customResource) (follower, error) {
	switch mode {
	case "typed-json":
		return newTyped(inJSON(config), inJSON(truth))
	case "typed-protobuf":
		return newTyped(inProtobuf(config), inProtobuf(truth))
	case "dynamic":
		return newDynamic(config, truth, custom.resource)
	case "metadata":
		return newMetadata(config, truth, custom.resource)
	case "manager":
		return newManager(config, truth, custom.kind)
	}
	return nil, fmt.Errorf("no mode %q", mode)
}

// customResource is what a CustomResourceDefinition defines, as clients name it.
type customResource struct {
	resource schema.GroupVersionResource
	kind     schema.GroupVersionKind
}

func parseCustom(plural, kind string) (customResource, error) {
	resource, _ := schema.ParseResourceArg(plural)
	if resource == nil {
		return customResource{}, fmt.Errorf("no version and group in %q", plural)
	}
	return customResource{*resource, resource.GroupVersion().WithKind(kind)}, nil
}

func withTimeout[T any](timeout time.Duration, do func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return do(ctx)
}

func connect(kubeconfig string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1 // the client's own limit of 5 requests a second only slows it down
	return rest.AddUserAgent(config, "informers"), nil
}
