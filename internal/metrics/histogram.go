// Package metrics measures on paths that must not wait: an observation is two atomic
// additions. What is read of a histogram while others observe may lack what is observed at
// that moment.
package metrics

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// Histogram counts values by size, in buckets whose bounds are powers of two.
type Histogram struct {
	first  int // the exponent of the first bound
	counts []atomic.Uint64
	sum    atomic.Uint64
}

// New returns a histogram with the bounds 2^first to 2^last, both included.
func New(first, last int) *Histogram {
	return &Histogram{first: first, counts: make([]atomic.Uint64, last-first+2)}
}

// NewDurations returns a histogram of durations, with bounds from 65 µs to 17 s.
func NewDurations() *Histogram { return New(16, 34) }

// NewLongDurations returns one with bounds from 1 ms to 73 min.
func NewLongDurations() *Histogram { return New(20, 42) }

// Observe counts a value.
func (h *Histogram) Observe(value uint64) {
	bucket := 0
	if value > 1<<h.first {
		bucket = min(bits.Len64(value-1)-h.first, len(h.counts)-1)
	}
	h.counts[bucket].Add(1)
	h.sum.Add(value)
}

// ObserveDuration counts a duration in nanoseconds, a negative one as 0.
func (h *Histogram) ObserveDuration(d time.Duration) { h.Observe(uint64(max(d, 0))) }

// Values is what a histogram has counted.
type Values struct {
	Bounds []uint64 // upper ones, ascending; each belongs to its bucket
	Counts []uint64 // of each bucket; the last one, without a bound, has what is larger
	Sum    uint64   // of the values
}

// Read returns what was counted so far.
func (h *Histogram) Read() Values {
	v := Values{Sum: h.sum.Load()}
	for i := range h.counts {
		v.Counts = append(v.Counts, h.counts[i].Load())
		if i < len(h.counts)-1 {
			v.Bounds = append(v.Bounds, 1<<(h.first+i))
		}
	}
	return v
}
