package main

import (
	"context"
	"fmt"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

const (
	between = 100 * time.Millisecond // comparisons
	most    = 20                     // differences that are told
)

// compared tells how many objects were held in the end, and in what they differ from the truth.
type compared struct {
	Objects     map[string]int `json:"objects"`
	Differences []string       `json:"differences"`
}

// compare waits until informers hold what the API server lists, since events are under way.
func compare(ctx context.Context, followed []collection) (*compared, error) {
	result := &compared{Objects: map[string]int{}, Differences: []string{}}
	for _, each := range followed {
		count, found, err := compareOne(ctx, each)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", each.name, err)
		}
		result.Objects[each.name] = count
		for _, difference := range found[:min(most, len(found))] {
			result.Differences = append(result.Differences, each.name+": "+difference)
		}
	}
	return result, nil
}

func compareOne(ctx context.Context, c collection) (count int, found []string, err error) {
	for {
		count, found, err = differences(c)
		if err != nil || len(found) == 0 {
			return count, found, err
		}
		select {
		case <-ctx.Done():
			return count, found, nil
		case <-time.After(between):
		}
	}
}

// differences lists anew each time: the API server itself writes some objects, such as its lease.
func differences(c collection) (count int, found []string, err error) {
	ctx := context.Background()
	listed, err := c.listed(ctx)
	if err != nil {
		return 0, nil, err
	}
	items, err := meta.ExtractList(listed)
	if err != nil {
		return 0, nil, err
	}
	held, err := c.held(ctx)
	if err != nil {
		return 0, nil, err
	}
	expected := byName(items)
	found = compareObjects(expected, byName(held))
	if c.reconciled != nil {
		found = append(found, compareVersions(expected, c.reconciled())...)
	}
	return len(held), found, nil
}

func compareObjects(expected, held map[types.NamespacedName]runtime.Object) (found []string) {
	for name, object := range expected {
		switch other, exists := held[name]; {
		case !exists:
			found = append(found, fmt.Sprintf("%s is missing", name))
		case !apiequality.Semantic.DeepEqual(object, other):
			found = append(found, fmt.Sprintf("%s is %+v, not %+v", name, other, object))
		}
	}
	for name := range held {
		if _, exists := expected[name]; !exists {
			found = append(found, fmt.Sprintf("%s is there still", name))
		}
	}
	return found
}

func compareVersions(expected map[types.NamespacedName]runtime.Object, seen versions) (found []string) {
	for name, object := range expected {
		if version := versionOf(object); seen[name] != version {
			found = append(found, fmt.Sprintf("%s was reconciled at %q, not at %s", name, seen[name], version))
		}
	}
	for name := range seen {
		if _, exists := expected[name]; !exists {
			found = append(found, fmt.Sprintf("%s was reconciled before its end only", name))
		}
	}
	return found
}

// byName leaves out the kind of objects whose Go type says it: some clients set it, some don't.
func byName(objects []runtime.Object) map[types.NamespacedName]runtime.Object {
	found := map[types.NamespacedName]runtime.Object{}
	for _, object := range objects {
		if _, untyped := object.(runtime.Unstructured); !untyped {
			object = object.DeepCopyObject()
			object.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
		}
		found[nameOf(object)] = object
	}
	return found
}
