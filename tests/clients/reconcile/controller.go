package main

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// A conflict is retried after 5 ms, twice that, and so on, as controller-runtime does; but for the
// limit of ten retries a second over all objects, which would hide what conflicts cost.
const (
	firstRetry = 5 * time.Millisecond
	lastRetry  = time.Second
)

var errUnsynced = errors.New("the informer did not sync in time")

// controller feeds a reconciler with the names of objects, one worker at a time for each.
type controller struct {
	informer   cache.SharedIndexInformer
	queue      workqueue.TypedRateLimitingInterface[string]
	reconciler *reconciler
	failed     context.CancelCauseFunc
}

func newController(informer cache.SharedIndexInformer, reconciler *reconciler) *controller {
	limit := workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, lastRetry)
	queue := workqueue.NewTypedRateLimitingQueue(limit)
	return &controller{informer: informer, queue: queue, reconciler: reconciler}
}

// Run reconciles until every object is done; an error that is no conflict ends it.
func (c *controller) Run(ctx context.Context, workers int) (*Result, error) {
	ctx, c.failed = context.WithCancelCause(ctx)
	defer c.failed(nil)
	defer c.queue.ShutDown()
	go c.informer.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), c.informer.HasSynced) {
		return nil, errUnsynced
	}
	for _, object := range c.informer.GetStore().List() {
		c.reconciler.Expect(object.(Object).GetName())
	}
	if _, err := c.informer.AddEventHandler(c.handler()); err != nil { // tells of all objects, too
		return nil, err
	}
	return c.work(ctx, workers)
}

func (c *controller) work(ctx context.Context, workers int) (*Result, error) {
	started := time.Now()
	stop := context.AfterFunc(ctx, c.queue.ShutDown)
	defer stop()
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for c.next(ctx) {
			}
		})
	}
	running.Wait()
	return c.reconciler.Result(time.Since(started)), context.Cause(ctx)
}

func (c *controller) handler() cache.ResourceEventHandler {
	enqueue := func(object any) { c.queue.Add(object.(Object).GetName()) }
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    enqueue,
		UpdateFunc: func(_, object any) { enqueue(object) },
	}
}

// next reconciles one object, and queues it once more unless it is done.
func (c *controller) next(ctx context.Context) bool {
	name, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(name)
	done, err := c.reconciler.Reconcile(ctx, name)
	switch {
	case apierrors.IsConflict(err):
		c.queue.AddRateLimited(name)
	case err != nil:
		c.failed(err)
	case done:
		if c.reconciler.AllDone() {
			c.queue.ShutDown()
		}
	default:
		c.queue.Forget(name)
		c.queue.Add(name)
	}
	return true
}
