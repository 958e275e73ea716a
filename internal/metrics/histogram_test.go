package metrics

import (
	"slices"
	"sync"
	"testing"
	"time"
)

func TestHistogram(t *testing.T) {
	h := New(2, 4) // bounds 4, 8, 16
	for _, value := range []uint64{0, 4, 5, 8, 9, 16, 17, 1 << 63} {
		h.Observe(value)
	}
	v := h.Read()
	if !slices.Equal(v.Bounds, []uint64{4, 8, 16}) || !slices.Equal(v.Counts, []uint64{2, 2, 2, 2}) {
		t.Errorf("bounds %v, counts %v, want 2 in each of 4 buckets up to 4, 8, 16 and beyond", v.Bounds, v.Counts)
	}
	if want := uint64(0 + 4 + 5 + 8 + 9 + 16 + 17 + 1<<63); v.Sum != want {
		t.Errorf("sum %d, want %d", v.Sum, want)
	}
}

func TestHistogram_Durations(t *testing.T) {
	h := NewDurations()
	h.ObserveDuration(-time.Second)
	h.ObserveDuration(65536 * time.Nanosecond)
	h.ObserveDuration(time.Hour)
	v := h.Read()
	if v.Counts[0] != 2 || v.Counts[len(v.Counts)-1] != 1 || len(v.Counts) != len(v.Bounds)+1 {
		t.Errorf("counts %v, want 2 in the first bucket and 1 in the last", v.Counts)
	}
}

func TestHistogram_Concurrent(t *testing.T) {
	h := NewLongDurations()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 1000 {
				h.ObserveDuration(time.Duration(i) * time.Millisecond)
				h.Read()
			}
		})
	}
	wg.Wait()
	total := uint64(0)
	for _, n := range h.Read().Counts {
		total += n
	}
	if total != 4000 {
		t.Errorf("%d observations, want 4000", total)
	}
}

func BenchmarkHistogram(b *testing.B) {
	h := NewDurations()
	b.ReportAllocs()
	for b.Loop() {
		h.Observe(123456)
	}
}
