package machine

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// pages reads a listing to its end.
func pages[V any](t *testing.T, m *Machine, query func(after *V) Query) (all []V) {
	t.Helper()
	for after := (*V)(nil); ; after = &all[len(all)-1] {
		page := Ask[[]V](m, query(after))
		if len(page) == 0 {
			return all
		}
		if all = append(all, page...); len(all) > 1<<20 {
			t.Fatal("the listing does not end")
		}
	}
}

// lockNames lists locks or elections by name, in pages of three.
func lockNames(t *testing.T, m *Machine, space wire.Space, prefix string) (names []string) {
	t.Helper()
	for _, v := range pages(t, m, func(after *LockView) Query {
		q := LocksQuery{Space: space, Prefix: prefix, Limit: 3}
		if after != nil {
			q.After = after.Name
		}
		return q
	}) {
		if one := Ask[*LockView](m, LockQuery{Space: space, Name: v.Name}); one == nil || !reflect.DeepEqual(*one, v) {
			t.Errorf("lock %q: %v alone, %v listed", v.Name, one, v)
		}
		names = append(names, v.Name)
	}
	return names
}

func withPrefix[T any](byName map[string]T, prefix string) []string {
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(byName)), func(n string) bool { return !strings.HasPrefix(n, prefix) })
	return slices.Clip(names)
}

// The index of names must list exactly the locks that exist, whatever the order
// in which they come and go, and whenever it is read.
func TestLocksQuery_ChangesBetweenPages(t *testing.T) {
	d := newDriver(t)
	d.line(wire.Code_OK, "open s ttl=1h")
	rng := rand.New(rand.NewPCG(1, 2))
	held := map[string]uint64{}
	for step := range 6000 {
		name := fmt.Sprintf("%c/%d", 'a'+rng.IntN(3), rng.IntN(1000))
		if fence := held[name]; fence != 0 {
			d.want(wire.Code_OK, d.do(unlockCommand(name, makeID("s"), 1, fence)))
			delete(held, name)
		} else {
			held[name] = d.want(wire.Code_OK, d.do(lockCommand(name, makeID("s"), 1))).Fence
		}
		if step%600 != 0 {
			continue
		}
		for _, prefix := range []string{"", "a", "b/", "b/1", "c/99", "d", "zz"} {
			if got, want := lockNames(t, d.m, wire.Space_LOCK, prefix), withPrefix(held, prefix); !slices.Equal(got, want) {
				t.Fatalf("step %d: locks with prefix %q: %v, want %v", step, prefix, got, want)
			}
		}
		if err := audit(d.m); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLocksQuery_PageBounds(t *testing.T) {
	d := newDriver(t)
	d.line(wire.Code_OK, "open s ttl=1h")
	for i := range MaxPage + 1 {
		d.line(wire.Code_OK, "lock %05d s/1", i)
	}
	d.line(wire.Code_OK, "lock x s/1 election")
	for _, row := range []struct {
		q    LocksQuery
		want int
	}{
		{LocksQuery{}, MaxPage},
		{LocksQuery{Limit: MaxPage + 1}, MaxPage},
		{LocksQuery{Limit: -1}, MaxPage},
		{LocksQuery{Limit: 2}, 2},
		{LocksQuery{After: "01023"}, 1},
		{LocksQuery{After: "01024"}, 0},
		{LocksQuery{After: "01022", Prefix: "0102"}, 2},
		{LocksQuery{After: "01022", Prefix: "0101"}, 0},
		{LocksQuery{After: "0", Prefix: "0101"}, 10},
		{LocksQuery{Space: wire.Space_ELECTION}, 1},
		{LocksQuery{Space: wire.Space_SEMAPHORE}, 0},
	} {
		if got := Ask[[]LockView](d.m, row.q); len(got) != row.want {
			t.Errorf("%+v: %d locks, want %d", row.q, len(got), row.want)
		}
	}
	for _, q := range []LockQuery{{Name: "x"}, {Space: wire.Space_ELECTION, Name: "00000"}, {Space: wire.Space_SEMAPHORE, Name: "00000"}} {
		if v := Ask[*LockView](d.m, q); v != nil {
			t.Errorf("%+v: %+v, want none", q, v)
		}
	}
}

func TestSemaphoresQuery(t *testing.T) {
	d := newDriver(t)
	d.line(wire.Code_OK, "open s ttl=1h")
	for i := range 20 {
		d.line(wire.Code_OK, "acquire p/%02d s limit=3 permits=2", i)
	}
	d.line(wire.Code_OK, "resize idle limit=7")
	var names []string
	for _, v := range pages(t, d.m, func(after *SemaphoreView) Query {
		if after == nil {
			return SemaphoresQuery{Limit: 4}
		}
		return SemaphoresQuery{Limit: 4, After: after.Name}
	}) {
		if one := Ask[*SemaphoreView](d.m, SemaphoreQuery{v.Name}); one == nil || !reflect.DeepEqual(*one, v) {
			t.Errorf("semaphore %q: %v alone, %v listed", v.Name, one, v)
		}
		names = append(names, v.Name)
	}
	if want := withPrefix(d.m.semaphores.byName, ""); !slices.Equal(names, want) {
		t.Errorf("%v, want %v", names, want)
	}
	if got := Ask[[]SemaphoreView](d.m, SemaphoresQuery{Prefix: "p/1"}); len(got) != 10 {
		t.Errorf("%d semaphores with the prefix, want 10", len(got))
	}
	if v := Ask[*SemaphoreView](d.m, SemaphoreQuery{"q"}); v != nil {
		t.Errorf("%+v, want none", v)
	}
}

// Of many holders the first are listed with their number. A page of semaphores that have many
// ends early, and the listing goes on.
func TestSemaphoresQuery_ManyHolders(t *testing.T) {
	const semaphores, each = 10, MaxHolders + 100
	d := newDriver(t)
	d.line(wire.Code_OK, "open s ttl=1h")
	for i := range semaphores {
		d.do(slices.Repeat([]*wire.Command{read(t, "acquire s%d s limit=%d permits=1", i, MaxPermits)}, each)...)
	}
	one := Ask[*SemaphoreView](d.m, SemaphoreQuery{Name: "s0"})
	if one.Total != each || len(one.Holders) != MaxHolders || one.Available != MaxPermits-each {
		t.Errorf("%d holders of %d, %d available", len(one.Holders), one.Total, one.Available)
	}
	all := pages(t, d.m, func(after *SemaphoreView) Query {
		if after == nil {
			return SemaphoresQuery{}
		}
		return SemaphoresQuery{After: after.Name}
	})
	if len(all) != semaphores || len(Ask[[]SemaphoreView](d.m, SemaphoresQuery{})) >= semaphores {
		t.Errorf("%d semaphores are listed, or in one page", len(all))
	}
	for i, v := range all {
		if v.Name != fmt.Sprint("s", i) || v.Total != each || len(v.Holders) != MaxHolders {
			t.Errorf("%s has %d holders of %d", v.Name, len(v.Holders), v.Total)
		}
	}
}

// The holders come in pages. Those of an ended session are skipped, even if they are a page.
func TestHoldersQuery_Pages(t *testing.T) {
	d := newDriver(t)
	d.m.split = 1
	d.line(wire.Code_OK, "open ended ttl=1h")
	d.line(wire.Code_OK, "open s ttl=1h")
	var want []uint64
	for _, session := range []string{"ended", "s"} {
		acquire := read(t, "acquire p %s limit=%d permits=1", session, MaxPermits)
		for _, o := range d.do(slices.Repeat([]*wire.Command{acquire}, pageVisits+10)...) {
			if session == "s" {
				want = append(want, o.Reply.Fence)
			}
		}
	}
	d.line(wire.Code_OK, "close ended")
	var got []uint64
	q, rounds := HoldersQuery{Name: "p", Limit: 1000}, 0
	for done := false; !done; rounds++ {
		page := Ask[HoldersView](d.m, q)
		if done = page.Done; !done && page.Next <= q.After || len(page.Holders) > q.Limit {
			t.Fatalf("after %d: %d holders, then %d", q.After, len(page.Holders), page.Next)
		}
		for _, h := range page.Holders {
			got = append(got, h.Fence)
		}
		q.After = page.Next
	}
	if !slices.Equal(got, want) || rounds < 10 {
		t.Errorf("%d holders in %d pages, want %d", len(got), rounds, len(want))
	}
}

func TestLeadersQuery(t *testing.T) {
	d := newDriver(t)
	d.line(wire.Code_OK, "open s ttl=1h delay=5s")
	d.line(wire.Code_OK, "open t ttl=1h")
	d.line(wire.Code_OK, "lock e/1 s/1 election value=one")
	d.line(wire.Code_OK, "lock e/2 t/1 election value=two")
	d.line(wire.Code_OK, "lock lock t/1")
	d.line(wire.Code_OK, "close s")
	views := Ask[[]LeaderView](d.m, LeadersQuery{Prefix: "e/"})
	if len(views) != 2 || views[0].Name != "e/1" || views[0].Leader != nil || string(views[1].Leader.Value) != "two" {
		t.Errorf("%+v", views)
	}
	if views := Ask[[]LeaderView](d.m, LeadersQuery{After: "e/1", Limit: 1}); len(views) != 1 || views[0].Name != "e/2" {
		t.Errorf("%+v", views)
	}
	if l := Ask[*fact.Leader](d.m, LeaderQuery{"e/2"}); l == nil || l.Session != makeID("t") {
		t.Errorf("%+v", l)
	}
	for _, name := range []string{"e/1", "e/3"} {
		if l := Ask[*fact.Leader](d.m, LeaderQuery{name}); l != nil {
			t.Errorf("%s: %+v, want none", name, l)
		}
	}
}
