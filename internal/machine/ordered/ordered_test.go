package ordered

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

type item struct {
	key  int
	name string
	at   int
	slot Slot
	link Link[item]
}

type items struct{}

func (items) Of(x *item) *Link[item] { return &x.link }

func byKey(a, b *item) int { return cmp.Compare(a.key, b.key) }

// Random changes, against a slice that is sorted each time.
func TestHeap_Random(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	var v Visits
	h := NewHeap(&v, byKey, func(x *item) *int { return &x.at })
	var model []*item
	for step := range 5000 {
		i := random.IntN(len(model) + 1)
		switch {
		case i == len(model) || random.IntN(3) == 0:
			x := &item{key: random.IntN(100)}
			h.Push(x)
			model = append(model, x)
		case random.IntN(2) == 0:
			model[i].key = random.IntN(100)
			h.Fix(model[i])
		case random.IntN(2) == 0:
			x := h.Pop()
			if x.key != slices.MinFunc(model, byKey).key || h.Contains(x) {
				t.Fatalf("step %d: %d was removed as the smallest", step, x.key)
			}
			model = slices.DeleteFunc(model, func(y *item) bool { return x == y })
		default:
			h.Remove(model[i])
			model = slices.Delete(model, i, i+1)
		}
		checkHeap(t, &h, model)
	}
	if v.Total() == 0 {
		t.Error("nothing was counted")
	}
}

func checkHeap(t *testing.T, h *Heap[*item], model []*item) {
	t.Helper()
	if h.Len() != len(model) || len(h.All()) != len(model) {
		t.Fatalf("%d elements, want %d", h.Len(), len(model))
	}
	if first := h.First(); len(model) == 0 && first != nil || len(model) > 0 && first.key != slices.MinFunc(model, byKey).key {
		t.Fatalf("the first is %v", first)
	}
	due := 0
	for _, x := range model {
		if !h.Contains(x) {
			t.Fatalf("%d has the position %d", x.key, x.at)
		}
		if x.key < 50 {
			due++
		}
	}
	if until := h.Until(func(x *item) bool { return x.key < 50 }); len(until) != due {
		t.Fatalf("%d elements until 50, want %d", len(until), due)
	}
}

func TestHeap_WithoutPositions(t *testing.T) {
	h := NewHeap(new(Visits), cmp.Compare[int], nil)
	for _, x := range []int{3, 1, 2, 1} {
		h.Push(x)
	}
	var popped []int
	for h.Len() > 0 {
		popped = append(popped, h.Pop())
	}
	if !slices.Equal(popped, []int{1, 1, 2, 3}) {
		t.Errorf("popped %v", popped)
	}
}

func TestList_Random(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 2))
	var v Visits
	var l List[item, items]
	var model []*item
	for step := range 5000 {
		if i := random.IntN(len(model) + 1); i == len(model) || random.IntN(2) == 0 {
			x := new(item)
			l.Push(x)
			model = append(model, x)
		} else {
			l.Remove(model[i])
			model = slices.Delete(model, i, i+1)
		}
		if l.Len != len(model) || !slices.Equal(l.AppendTo(nil, &v), model) {
			t.Fatalf("step %d: %d elements, want %d", step, l.Len, len(model))
		}
		var back []*item
		for x := l.Last(); x != nil; x = x.link.Prev() {
			back = append(back, x)
		}
		slices.Reverse(back)
		if !slices.Equal(back, model) || l.First() != first(model) {
			t.Fatalf("step %d: backwards the list has other elements", step)
		}
	}
}

func first(model []*item) *item {
	if len(model) == 0 {
		return nil
	}
	return model[0]
}

func TestList_RemovedWhileIterating(t *testing.T) {
	var v Visits
	var l List[item, items]
	for i := range 5 {
		l.Push(&item{key: i})
	}
	for x := range l.All(&v) {
		if x.key%2 == 0 {
			l.Remove(x)
		}
	}
	if v.Total() != 5 || l.Len != 2 || l.First().key != 1 || l.First().link.Next().key != 3 || l.Last().link.Next() != nil {
		t.Errorf("%d visits, %d elements are left", v.Total(), l.Len)
	}
}

// Names are added, removed, merged and read; a removed one is added as another object.
func TestIndex_Random(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 3))
	x := NewIndex(new(Visits), func(i *item) string { return i.name }, func(i *item) *Slot { return &i.slot })
	byName := make(map[string]*item)
	for step := range 4 * MaxMerged {
		name := fmt.Sprint(random.IntN(3 * MaxMerged))
		if of := byName[name]; of != nil {
			x.Remove(of)
			delete(byName, name)
		} else {
			byName[name] = &item{name: name}
			x.Add(byName[name])
		}
		if step%97 == 0 {
			if err := x.Check(byName); err != nil {
				t.Fatalf("step %d: %v", step, err)
			}
		}
		if step%1009 == 0 {
			checkPage(t, &x, byName, fmt.Sprint(1+random.IntN(9)), fmt.Sprint(random.IntN(3*MaxMerged)))
		}
	}
}

func checkPage(t *testing.T, x *Index[item], byName map[string]*item, prefix, after string) {
	t.Helper()
	var want, got []string
	for name := range byName {
		if strings.HasPrefix(name, prefix) && name > after {
			want = append(want, name)
		}
	}
	slices.Sort(want)
	x.Page(&item{name: max(prefix, after)}, prefix, after, func(of *item) bool {
		got = append(got, of.name)
		return true
	})
	if !slices.Equal(got, want) {
		t.Fatalf("%q after %q: %d names, want %d", prefix, after, len(got), len(want))
	}
}

// A check that never fails proves nothing.
func TestIndex_CheckFindsFaults(t *testing.T) {
	x := NewIndex(new(Visits), func(i *item) string { return i.name }, func(i *item) *Slot { return &i.slot })
	a, b := &item{name: "a"}, &item{name: "b"}
	x.Add(a)
	x.Page(a, "", "", func(*item) bool { return true })
	x.Add(b)
	whole := map[string]*item{"a": a, "b": b}
	if err := x.Check(whole); err != nil {
		t.Fatal(err)
	}
	for _, other := range []map[string]*item{{"a": a}, {"a": a, "b": a}, {"a": a, "b": b, "c": {name: "c"}}} {
		if x.Check(other) == nil {
			t.Errorf("%v passes for the index of a and b", other)
		}
	}
	b.slot = 2
	if x.Check(whole) == nil {
		t.Error("a wrong slot passes")
	}
}
