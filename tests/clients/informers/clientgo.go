package main

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
)

var everything = metav1.ListOptions{}

// builtin are the resources that every mode follows, but for a manager.
var builtin = []schema.GroupVersionResource{
	corev1.SchemeGroupVersion.WithResource("configmaps"),
	corev1.SchemeGroupVersion.WithResource("pods"),
	coordinationv1.SchemeGroupVersion.WithResource("leases"),
}

// newTyped follows with a clientset, in whatever form its configuration asks for.
func newTyped(config, truth *rest.Config) (*shared, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	direct, err := kubernetes.NewForConfig(truth)
	if err != nil {
		return nil, err
	}
	made := informers.NewSharedInformerFactory(client, 0)
	s := &shared{factory: made}
	s.add("configmaps", made.Core().V1().ConfigMaps().Informer(),
		func(ctx context.Context) (runtime.Object, error) {
			return direct.CoreV1().ConfigMaps("").List(ctx, everything)
		})
	s.add("pods", made.Core().V1().Pods().Informer(),
		func(ctx context.Context) (runtime.Object, error) {
			return direct.CoreV1().Pods("").List(ctx, everything)
		})
	s.add("leases", made.Coordination().V1().Leases().Informer(),
		func(ctx context.Context) (runtime.Object, error) {
			return direct.CoordinationV1().Leases("").List(ctx, everything)
		})
	return s, nil
}

// newDynamic follows without knowing types.
func newDynamic(config, truth *rest.Config, custom schema.GroupVersionResource) (*shared, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	direct, err := dynamic.NewForConfig(truth)
	if err != nil {
		return nil, err
	}
	made := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	return newUntyped(made, custom, func(ctx context.Context, each schema.GroupVersionResource) (runtime.Object, error) {
		return direct.Resource(each).List(ctx, everything)
	}), nil
}

// newMetadata follows metadata alone.
func newMetadata(config, truth *rest.Config, custom schema.GroupVersionResource) (*shared, error) {
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	direct, err := metadata.NewForConfig(truth)
	if err != nil {
		return nil, err
	}
	made := metadatainformer.NewSharedInformerFactory(client, 0)
	return newUntyped(made, custom, func(ctx context.Context, each schema.GroupVersionResource) (runtime.Object, error) {
		return direct.Resource(each).List(ctx, everything)
	}), nil
}

// untypedFactory makes informers of whatever resource.
type untypedFactory interface {
	factory
	ForResource(schema.GroupVersionResource) informers.GenericInformer
}

func newUntyped(
	made untypedFactory,
	custom schema.GroupVersionResource,
	list func(context.Context, schema.GroupVersionResource) (runtime.Object, error),
) *shared {
	s := &shared{factory: made}
	for _, each := range append(builtin, custom) {
		s.add(each.Resource, made.ForResource(each).Informer(),
			func(ctx context.Context) (runtime.Object, error) { return list(ctx, each) })
	}
	return s
}
