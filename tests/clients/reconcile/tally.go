package main

import (
	"slices"
	"time"
)

// tally counts while the loop runs; a latency is one successful update's, from the first attempt
// of its reconcile and with all retries.
type tally struct {
	reads     int
	stale     int
	conflicts int
	latencies []time.Duration
}

// Result is what is printed.
type Result struct {
	Reconciles int     `json:"reconciles"`
	Reads      int     `json:"reads"`
	StaleReads int     `json:"stale_reads"` // did not see the loop's own last update
	Conflicts  int     `json:"conflicts"`
	Seconds    float64 `json:"seconds"`
	P50        float64 `json:"p50_seconds"` // of a reconcile, retries included
	P99        float64 `json:"p99_seconds"`
}

func (t *tally) result(took time.Duration) *Result {
	slices.Sort(t.latencies)
	return &Result{
		Reconciles: len(t.latencies),
		Reads:      t.reads,
		StaleReads: t.stale,
		Conflicts:  t.conflicts,
		Seconds:    took.Seconds(),
		P50:        t.percentile(50).Seconds(),
		P99:        t.percentile(99).Seconds(),
	}
}

func (t *tally) percentile(share int) time.Duration {
	if len(t.latencies) == 0 {
		return 0
	}
	return t.latencies[len(t.latencies)*share/100]
}
