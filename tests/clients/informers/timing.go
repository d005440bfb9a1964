package main

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// timed tells how long an informer took to hold all objects there are.
type timed struct {
	Objects int     `json:"objects"`
	Seconds float64 `json:"seconds"`
}

// timePods starts an informer of all pods, typed and in protobuf, and ends once it is synced.
func timePods(ctx context.Context, config *rest.Config) (*timed, error) {
	client, err := kubernetes.NewForConfig(inProtobuf(config))
	if err != nil {
		return nil, err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	pods := factory.Core().V1().Pods().Informer()
	started := time.Now()
	factory.StartWithContext(ctx)
	if err := factory.WaitForCacheSyncWithContext(ctx).AsError(); err != nil {
		return nil, err
	}
	took := time.Since(started).Seconds()
	return &timed{Objects: len(pods.GetStore().ListKeys()), Seconds: took}, nil
}

// inProtobuf is what clients of types that are known ask for, and controllers say so.
func inProtobuf(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return config
}

// inJSON is what has to be asked for.
func inJSON(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.ContentType = runtime.ContentTypeJSON
	config.AcceptContentTypes = runtime.ContentTypeJSON
	return config
}
