package queue

import (
	"math"
	"slices"
	"testing"
)

const write = 256 << 10 // bytes of one write

func TestQueue_Bounds(t *testing.T) {
	for _, c := range []struct {
		name               string
		items, bytes, size int
		want               int
	}{
		{"by items", 10, math.MaxInt, 10, 10},
		{"by bytes", math.MaxInt, 5000, 1000, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := New[string](c.items, c.bytes)
			q.Reset(true)
			pushed := 0
			for q.Push("x", c.size) {
				pushed++
				if pushed == 1 {
					q.Take(write) // items being written still count
				}
			}
			if pushed != c.want {
				t.Fatalf("%d items were accepted, want %d", pushed, c.want)
			}
			q.Written()
			if !q.Push("x", c.size) {
				t.Error("written did not release the room")
			}
			q.Reset(false)
			if q.Push("x", c.size) {
				t.Error("a queue that does not accept accepted an item")
			}
			if q.bytes != 0 || q.items != nil {
				t.Error("a queue that was emptied keeps its memory")
			}
		})
	}
}

// Bulk is written when nothing else is queued, a write at a time, and may fill half of
// the queue.
func TestQueue_BulkLast(t *testing.T) {
	q := New[int](100, 8*write)
	q.Reset(true)
	pushed := 0
	for q.PushBulk(pushed+1, write/2) {
		pushed++
	}
	if pushed != 8 {
		t.Errorf("%d bulk items were accepted, want 8: half of the bytes", pushed)
	}
	var got [][]int
	for round := range 6 {
		if round < 2 && !(q.Push(-1, 10) && q.Push(-2, 10)) {
			t.Fatal("bulk has taken all of the room")
		}
		select {
		case <-q.Ready:
		default:
			t.Fatal("items are queued without a signal")
		}
		got = append(got, q.Take(write))
		q.Written()
	}
	want := [][]int{{-1, -2}, {-1, -2}, {1, 2}, {3, 4}, {5, 6}, {7, 8}}
	if !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("written in the order %v, want %v", got, want)
	}
	if q.bytes != 0 || q.bulkBytes != 0 || q.writing != 0 {
		t.Errorf("%d and %d bytes are left", q.bytes, q.bulkBytes)
	}
	items := New[int](10, 1000)
	items.Reset(true)
	for pushed = 0; items.PushBulk(1, 1); pushed++ {
	}
	if pushed != 5 {
		t.Errorf("%d bulk items were accepted of 10, want 5", pushed)
	}
}
