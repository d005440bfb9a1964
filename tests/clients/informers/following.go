package main

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

var errUnsynced = errors.New("the informers did not sync in time")

// follower is a set of informers of one kind of client.
type follower interface {
	Start(ctx context.Context)
	WaitForSync(ctx context.Context) error
	Collections() []collection
}

// collection is one resource as one kind of client shows it.
type collection struct {
	name       string
	held       func(ctx context.Context) ([]runtime.Object, error) // by the informer
	listed     func(ctx context.Context) (runtime.Object, error)   // by the API server
	reconciled func() versions                                     // nil where nobody reconciles
}

// versions are resourceVersions of objects.
type versions map[types.NamespacedName]string

// factory is what client-go's factories of informers have in common.
type factory interface {
	Start(stop <-chan struct{})
}

// shared are informers of one of client-go's factories.
type shared struct {
	factory     factory
	synced      []cache.InformerSynced
	collections []collection
}

// add has another resource followed, which is listed by *listed*.
func (s *shared) add(
	name string,
	informer cache.SharedIndexInformer,
	listed func(ctx context.Context) (runtime.Object, error),
) {
	held := func(context.Context) ([]runtime.Object, error) { return heldBy(informer), nil }
	s.synced = append(s.synced, informer.HasSynced)
	s.collections = append(s.collections, collection{name: name, held: held, listed: listed})
}

func (s *shared) Start(ctx context.Context) { s.factory.Start(ctx.Done()) }

func (s *shared) WaitForSync(ctx context.Context) error {
	if !cache.WaitForCacheSync(ctx.Done(), s.synced...) {
		return errUnsynced
	}
	return nil
}

func (s *shared) Collections() []collection { return s.collections }

func heldBy(informer cache.SharedIndexInformer) []runtime.Object {
	var held []runtime.Object
	for _, each := range informer.GetStore().List() {
		held = append(held, each.(runtime.Object))
	}
	return held
}

func nameOf(object runtime.Object) types.NamespacedName {
	found, _ := meta.Accessor(object) // never fails for what a client decoded
	return types.NamespacedName{Namespace: found.GetNamespace(), Name: found.GetName()}
}

func versionOf(object runtime.Object) string {
	found, _ := meta.Accessor(object)
	return found.GetResourceVersion()
}
