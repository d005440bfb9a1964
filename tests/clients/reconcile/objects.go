package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

// Object is what a reconcile needs of an object, whichever client decoded it.
type Object interface {
	metav1.Object
	runtime.Object
}

// Objects are the ConfigMaps of one namespace, at one server.
type Objects interface {
	Get(ctx context.Context, name string) (Object, error)
	Update(ctx context.Context, object Object) (Object, error)
	List(ctx context.Context, options metav1.ListOptions) (runtime.Object, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
	Example() Object
}

// newObjects speaks protobuf where the types are known, as controllers do, and JSON otherwise.
func newObjects(client string, config *rest.Config, namespace string) (Objects, error) {
	switch client {
	case "typed":
		config.ContentType = runtime.ContentTypeProtobuf
		config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
		made, err := typed.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		return typedObjects{made.ConfigMaps(namespace)}, nil
	case "dynamic":
		made, err := dynamic.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		configMaps := corev1.SchemeGroupVersion.WithResource("configmaps")
		return dynamicObjects{made.Resource(configMaps).Namespace(namespace)}, nil
	}
	return nil, fmt.Errorf("no client %q", client)
}

type typedObjects struct{ client typed.ConfigMapInterface }

func (o typedObjects) Get(ctx context.Context, name string) (Object, error) {
	return o.client.Get(ctx, name, metav1.GetOptions{})
}

func (o typedObjects) Update(ctx context.Context, object Object) (Object, error) {
	return o.client.Update(ctx, object.(*corev1.ConfigMap), metav1.UpdateOptions{})
}

func (o typedObjects) List(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	return o.client.List(ctx, options)
}

func (o typedObjects) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	return o.client.Watch(ctx, options)
}

func (o typedObjects) Example() Object { return &corev1.ConfigMap{} }

type dynamicObjects struct{ client dynamic.ResourceInterface }

func (o dynamicObjects) Get(ctx context.Context, name string) (Object, error) {
	return o.client.Get(ctx, name, metav1.GetOptions{})
}

func (o dynamicObjects) Update(ctx context.Context, object Object) (Object, error) {
	return o.client.Update(ctx, object.(*unstructured.Unstructured), metav1.UpdateOptions{})
}

func (o dynamicObjects) List(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	return o.client.List(ctx, options)
}

func (o dynamicObjects) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	return o.client.Watch(ctx, options)
}

func (o dynamicObjects) Example() Object { return &unstructured.Unstructured{} }
