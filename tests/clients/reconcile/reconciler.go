package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// counter is the annotation that nobody else writes.
const counter = "example.com/reconciles"

// progress is what the loop knows of one object without reading it. The queue gives an object to
// one worker at a time, so it needs no lock.
type progress struct {
	written int       // the counter of the last successful update
	began   time.Time // the first attempt of the reconcile under way
	done    bool
}

// reconciler increments the counter of each object a number of times.
type reconciler struct {
	read     read
	update   func(ctx context.Context, object Object) (Object, error)
	times    int
	progress map[string]*progress // complete before the first reconcile

	mutex sync.Mutex // guards what follows
	left  int        // objects that are not done
	tally tally
}

func newReconciler(
	read read, update func(context.Context, Object) (Object, error), times int,
) *reconciler {
	return &reconciler{read: read, update: update, times: times, progress: map[string]*progress{}}
}

// Expect names an object that is to be reconciled.
func (r *reconciler) Expect(name string) {
	r.progress[name] = &progress{}
	r.left++
}

// Reconcile increments the counter once. It is done when a read has seen the last of all updates.
func (r *reconciler) Reconcile(ctx context.Context, name string) (done bool, err error) {
	p := r.progress[name]
	if p == nil || p.done {
		return true, nil
	}
	if p.began.IsZero() {
		p.began = time.Now()
	}
	object, err := r.read(ctx, name)
	if err != nil {
		return false, err
	}
	count := countOf(object)
	if err := r.verify(name, count, p.written); err != nil {
		return false, err
	}
	if count == r.times {
		r.finish(p)
		return true, nil
	}
	return false, r.increment(ctx, object, count, p)
}

// verify compares what was read with what was written last.
func (r *reconciler) verify(name string, count, written int) error {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.tally.reads++
	if count < written {
		r.tally.stale++ // and go on, as a controller does that cannot know
	}
	if count > written {
		return fmt.Errorf("%s counts %d where %d was written last", name, count, written)
	}
	return nil
}

func (r *reconciler) increment(ctx context.Context, object Object, count int, p *progress) error {
	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[counter] = strconv.Itoa(count + 1)
	object.SetAnnotations(annotations)
	_, err := r.update(ctx, object)
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if apierrors.IsConflict(err) {
		r.tally.conflicts++
	}
	if err == nil {
		r.tally.latencies = append(r.tally.latencies, time.Since(p.began))
		p.written, p.began = count+1, time.Time{}
	}
	return err
}

func (r *reconciler) finish(p *progress) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	p.done = true
	r.left--
}

// AllDone tells whether no object is left.
func (r *reconciler) AllDone() bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.left == 0
}

// Result tells what has happened in a time.
func (r *reconciler) Result(took time.Duration) *Result {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.tally.result(took)
}

func countOf(object Object) int {
	count, _ := strconv.Atoi(object.GetAnnotations()[counter])
	return count
}
