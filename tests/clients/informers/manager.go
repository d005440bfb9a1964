package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// managed is a manager of controller-runtime with one controller for each of its collections.
type managed struct {
	manager     ctrl.Manager
	direct      client.Client
	collections []collection
}

// newManager follows typed objects, unstructured ones and metadata alone in one cache.
func newManager(config, truth *rest.Config, custom schema.GroupVersionKind) (*managed, error) {
	ctrl.SetLogger(klog.Background())
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Client:  client.Options{Cache: &client.CacheOptions{Unstructured: true}},
		Metrics: server.Options{BindAddress: "0"}, // none
	})
	if err != nil {
		return nil, err
	}
	direct, err := client.New(truth, client.Options{})
	if err != nil {
		return nil, err
	}
	m := &managed{manager: manager, direct: direct}
	pod, configMap := corev1.SchemeGroupVersion.WithKind("Pod"), corev1.SchemeGroupVersion.WithKind("ConfigMap")
	for name, each := range map[string]struct {
		object client.Object
		list   client.ObjectList
	}{
		"pods":                {&corev1.Pod{}, &corev1.PodList{}},
		"leases":              {&coordinationv1.Lease{}, &coordinationv1.LeaseList{}},
		"configmaps":          {typed(&unstructured.Unstructured{}, configMap), typed(&unstructured.UnstructuredList{}, listOf(configMap))},
		"customs":             {typed(&unstructured.Unstructured{}, custom), typed(&unstructured.UnstructuredList{}, listOf(custom))},
		"metadata of pods":    {typed(&metav1.PartialObjectMetadata{}, pod), typed(&metav1.PartialObjectMetadataList{}, listOf(pod))},
		"metadata of customs": {typed(&metav1.PartialObjectMetadata{}, custom), typed(&metav1.PartialObjectMetadataList{}, listOf(custom))},
	} {
		if err := m.add(name, each.object, each.list); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return m, nil
}

// add has another resource followed and reconciled.
func (m *managed) add(name string, object client.Object, list client.ObjectList) error {
	// Known before the cache is started, so that its sync is theirs.
	if _, err := m.manager.GetCache().GetInformer(context.Background(), object, cache.BlockUntilSynced(false)); err != nil {
		return err
	}
	r := &reconciler{reader: m.manager.GetClient(), object: object, seen: versions{}}
	m.collections = append(m.collections, collection{
		name: name,
		held: func(ctx context.Context) ([]runtime.Object, error) {
			held := list.DeepCopyObject().(client.ObjectList)
			if err := m.manager.GetClient().List(ctx, held); err != nil {
				return nil, err
			}
			return meta.ExtractList(held)
		},
		listed: func(ctx context.Context) (runtime.Object, error) {
			listed := list.DeepCopyObject().(client.ObjectList)
			return listed, m.direct.List(ctx, listed)
		},
		reconciled: r.Seen,
	})
	return ctrl.NewControllerManagedBy(m.manager).Named(name).For(object).Complete(r)
}

// Start runs the manager, whose failure is the program's.
func (m *managed) Start(ctx context.Context) {
	go func() {
		if err := m.manager.Start(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "informers:", err)
			os.Exit(1)
		}
	}()
}

func (m *managed) WaitForSync(ctx context.Context) error {
	if !m.manager.GetCache().WaitForCacheSync(ctx) {
		return errUnsynced
	}
	return nil
}

func (m *managed) Collections() []collection { return m.collections }

// reconciler reads each object of which it is told, and notes what it has seen last.
type reconciler struct {
	reader client.Reader
	object client.Object // an empty one of its type

	mutex sync.Mutex // guards what follows
	seen  versions
}

func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	object := r.object.DeepCopyObject().(client.Object)
	err := r.reader.Get(ctx, request.NamespacedName, object)
	r.mutex.Lock()
	defer r.mutex.Unlock()
	switch {
	case err == nil:
		r.seen[request.NamespacedName] = object.GetResourceVersion()
	case apierrors.IsNotFound(err):
		delete(r.seen, request.NamespacedName)
	default:
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, nil
}

// Seen are the versions that the last reconcile of each object has read.
func (r *reconciler) Seen() versions {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return maps.Clone(r.seen)
}

// typed says of an object, or of a list, what it is of.
func typed[T schema.ObjectKind](object T, kind schema.GroupVersionKind) T {
	object.SetGroupVersionKind(kind)
	return object
}

func listOf(kind schema.GroupVersionKind) schema.GroupVersionKind {
	return kind.GroupVersion().WithKind(kind.Kind + "List")
}
