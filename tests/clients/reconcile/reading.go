package main

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// read returns an object that the caller may change.
type read func(ctx context.Context, name string) (Object, error)

// reader is where reconciles read from: the loop's own informer, which lags behind its writes, or
// the server, which may be kubecache.
func reader(mode string, objects Objects, informer cache.SharedIndexInformer, namespace string) (read, error) {
	switch mode {
	case "informer":
		return func(_ context.Context, name string) (Object, error) {
			held, exists, err := informer.GetStore().GetByKey(namespace + "/" + name)
			if err != nil || !exists {
				return nil, fmt.Errorf("%s is not in the informer: %w", name, err)
			}
			return held.(Object).DeepCopyObject().(Object), nil
		}, nil
	case "proxy":
		return objects.Get, nil
	}
	return nil, fmt.Errorf("no mode %q", mode)
}

func newInformer(objects Objects) cache.SharedIndexInformer {
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return objects.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return objects.Watch(ctx, o)
		},
	}
	return cache.NewSharedIndexInformer(source, objects.Example(), 0, cache.Indexers{})
}
