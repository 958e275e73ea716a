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
			for q.Push(0, "x", c.size) {
				pushed++
				if pushed == 1 {
					q.Take(write) // items being written still count
				}
			}
			if pushed != c.want {
				t.Fatalf("%d items were accepted, want %d", pushed, c.want)
			}
			q.Written()
			if !q.Push(0, "x", c.size) {
				t.Error("written did not release the room")
			}
			q.Reset(false)
			if q.Push(0, "x", c.size) {
				t.Error("a queue that does not accept accepted an item")
			}
			if q.queued != (load{}) || q.ring != nil || len(q.flows) > 0 {
				t.Error("a queue that was emptied keeps its memory")
			}
		})
	}
}

// Bulk is written behind what else is queued, a write at a time, and may fill half of
// the queue.
func TestQueue_BulkLast(t *testing.T) {
	q := New[int](100, 8*write)
	q.Reset(true)
	pushed := 0
	for q.PushBulk(0, pushed+1, write/2) {
		pushed++
	}
	if pushed != 8 {
		t.Errorf("%d bulk items were accepted, want 8: half of the bytes", pushed)
	}
	var got [][]int
	for round := range 4 {
		if round < 2 && !(q.Push(0, -1, 10) && q.Push(0, -2, 10)) {
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
	want := [][]int{{-1, -2, 1, 2}, {-1, -2, 3, 4}, {5, 6}, {7, 8}}
	if !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("written in the order %v, want %v", got, want)
	}
	if q.queued != (load{}) || q.bulk != (load{}) || q.writing != 0 {
		t.Errorf("%v and %v are left", q.queued, q.bulk)
	}
	items := New[int](10, 1000)
	items.Reset(true)
	for pushed = 0; items.PushBulk(0, 1, 1); pushed++ {
	}
	if pushed != 5 {
		t.Errorf("%d bulk items were accepted of 10, want 5", pushed)
	}
}

// Flows take turns, each in its order: what one has queued delays no other for more than a write, and bulk waits for what else its own
// flow has.
func TestQueue_FlowsTakeTurns(t *testing.T) {
	q := NewFair[int](1000, 100*write, 0, 0)
	q.Reset(true)
	for i := range 20 {
		q.Push(7, 700+i, write/2)
	}
	q.PushBulk(3, 350, 10)
	q.Push(3, 300, 10)
	q.PushBulk(4, 450, 10)
	var got []int
	for range 2 {
		got = append(got, q.Take(write)...)
		q.Written()
	}
	if want := []int{700, 300, 350, 450, 701, 702}; !slices.Equal(got, want) {
		t.Errorf("written first: %v, want %v", got, want)
	}
	q.Push(4, 401, 10)
	var rest []int
	for len(q.Ready) > 0 {
		<-q.Ready
		rest = append(rest, q.Take(write)...)
		q.Written()
	}
	if n := slices.Index(rest, 401); n < 0 || n > 2 {
		t.Errorf("what came later is at position %d of %v", n, rest)
	}
	if rest = slices.DeleteFunc(rest, func(i int) bool { return i < 700 }); len(rest) != 17 || !slices.IsSorted(rest) {
		t.Errorf("of flow 7: %v", rest)
	}
	if q.queued != (load{}) || len(q.flows) > 0 || q.ring != nil {
		t.Errorf("%v are left", q.queued)
	}
}

// pushes pushes items of a flow until one is refused, and returns how many are accepted.
func pushes(push func(uint32, int, int) bool, number uint32, size int) (n int) {
	for push(number, 1, size) {
		n++
	}
	return n
}

// A flow that takes all that it gets leaves the others as much, large items included, and then what is reserved for them.
func TestQueue_Reserved(t *testing.T) {
	q := NewFair[int](10, 1000, 2, 100)
	q.Reset(true)
	for _, c := range []struct {
		name   string
		number uint32
		size   int
		push   func(uint32, int, int) bool
		want   int
	}{
		{"half of the queue", 1, 10, q.Push, 5},
		{"large, by bytes", 2, 300, q.Push, 2},
		{"bulk of a third flow", 3, 10, q.PushBulk, 2},
		{"one more", 4, 10, q.Push, 2},
		{"and with what is reserved, by items", 5, 10, q.Push, 2},
		{"by bytes", 6, 60, q.Push, 1},
		{"bulk", 7, 10, q.PushBulk, 1},
		{"behind bulk", 7, 10, q.Push, 1},
		{"larger than what is reserved", 8, 101, q.Push, 0},
	} {
		if n := pushes(c.push, c.number, c.size); n != c.want {
			t.Errorf("%s: %d are accepted, want %d", c.name, n, c.want)
		}
	}
	q.Take(1 << 20)
	if pushes(q.Push, 1, 10) != 2 { // what is being written counts against the bounds of the queue
		t.Error("the reserve of a flow is not free while what it had is being written")
	}
}

// A flow with large items gets its turn although two others queue all that they can, and each bulk as well.
func TestQueue_LargeItemsBesideGreedyFlows(t *testing.T) {
	const frame, queue = 1 << 20, 32 << 20
	q := NewFair[int](8192, queue, 64, 64<<10)
	q.Reset(true)
	sent := 0
	for range 200 {
		for _, greedy := range []uint32{1, 2} {
			pushes(q.Push, greedy, frame)
			pushes(q.PushBulk, greedy, frame)
		}
		if !q.PushBulk(3, 30, frame/2) || !q.Push(3, 3, frame) {
			t.Fatal("refused while others have filled the queue")
		}
		for len(q.Ready) > 0 && q.hasAny(3) {
			<-q.Ready
			for _, i := range q.Take(write) {
				if i == 3 {
					sent++
				}
			}
			if q.Written() > 4*frame {
				t.Fatal("the other flows have more than a turn each")
			}
		}
	}
	if sent != 200 {
		t.Errorf("%d of 200 are sent", sent)
	}
}

func (q *Queue[T]) hasAny(number uint32) bool { queued, _ := q.has(number); return queued.items > 0 }
