package machine

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

func TestSessionsQuery(t *testing.T) {
	d := newDriver(t)
	d.do(read(t, "open c ttl=1h"), read(t, "open a ttl=1h"), read(t, "open b ttl=1h")) // one create index
	for i := range 10 {
		d.line(wire.Code_OK, "open s%d ttl=1h", i)
	}
	d.line(wire.Code_OK, "close s4")
	all := pages(t, d.m, func(after *SessionView) Query {
		if after == nil {
			return SessionsQuery{Limit: 2}
		}
		return SessionsQuery{Limit: 2, After: after.Cursor()}
	})
	var want []SessionView
	for _, s := range slices.SortedFunc(maps.Values(d.m.sessions), byCreation) {
		want = append(want, d.m.viewSession(s))
	}
	if !reflect.DeepEqual(all, want) {
		t.Errorf("%v\nwant %v", all, want)
	}
	for _, v := range all {
		if one := Ask[*SessionView](d.m, SessionQuery{v.ID}); one == nil || !reflect.DeepEqual(*one, v) {
			t.Errorf("session %s: %v alone, %v listed", v.ID, one, v)
		}
	}
	if one := Ask[*SessionView](d.m, SessionQuery{makeID("s4")}); one != nil {
		t.Errorf("%v, want none", one)
	}
}

func TestChecksQuery(t *testing.T) {
	d := newDriver(t)
	d.line(wire.Code_OK, "check disk register ttl=9s")
	d.line(wire.Code_OK, "check http register")
	d.line(wire.Code_OK, "check bad register ttl=9s critical")
	d.line(wire.Code_OK, "check gone register")
	d.line(wire.Code_OK, "drop gone")
	for member := 2; member < 5; member++ {
		d.inc, d.seq = wire.ID{byte(member)}, 0
		d.line(wire.Code_OK, "register member=%d boot=1", member)
		d.line(wire.Code_OK, "check app register warning")
	}
	d.time = MinSilence
	d.line(wire.Code_OK, "gossip member=2 boot=1 dead")
	d.line(wire.Code_OK, "remove-member voters=1")
	var got []string
	for _, v := range pages(t, d.m, func(after *CheckView) Query {
		if after == nil {
			return ChecksQuery{Limit: 2}
		}
		return ChecksQuery{Limit: 2, After: after.Cursor()}
	}) {
		got = append(got, fmt.Sprint(v.Member, " ", v.Name, " ", v.State, " ", v.TTL, " ", v.Remaining, " ", v.BuiltIn))
	}
	if want := []string{
		"1 bad CRITICAL 9000000000 0 false",
		"1 disk PASSING 9000000000 4000000000 false",
		"1 gossip PASSING 0 0 true",
		"1 http PASSING 0 0 false",
		"2 app WARNING 0 0 false",
		"2 gossip CRITICAL 0 0 true",
		"3 app WARNING 0 0 false",
		"3 gossip PASSING 0 0 true",
	}; !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	for member := range uint64(6) {
		if removed := Ask[bool](d.m, RemovedQuery{member}); removed != (member == 4) {
			t.Errorf("member %d is removed: %t", member, removed)
		}
	}
}

func TestKeyQueries(t *testing.T) {
	d := newDriver(t)
	d.line(wire.Code_OK, "open s ttl=1h")
	d.line(wire.Code_OK, "write put a/1 v ; put a/b/2 v ; put a/b/3 v ; put a/b v ; put c v")
	d.line(wire.Code_OK, "write acquire c v session=s")
	keys, names := KeysQuery{"a/"}.Begin(d.m), KeyNamesQuery{"a/", "/"}.Begin(d.m)
	if e := Ask[*fact.Entry](d.m, KeyQuery{"c"}); e == nil || e.Session != makeID("s") {
		t.Errorf("%v", e)
	}
	for q, want := range map[SequencerQuery]bool{
		{"c", 1, makeID("s")}:   true,
		{"c", 2, makeID("s")}:   false,
		{"c", 1, makeID("t")}:   false,
		{"d", 1, makeID("s")}:   false,
		{"a/1", 0, wire.ID{}}:   false,
		{"none", 0, wire.ID{}}:  false,
		{"a/1", 0, makeID("s")}: false,
	} {
		if got := Ask[bool](d.m, q); got != want {
			t.Errorf("%+v: %v", q, got)
		}
	}
	d.line(wire.Code_OK, "write delete-prefix ''")
	if got := keys().([]*fact.Entry); len(got) != 4 || got[0].Key != "a/1" || got[3].Key != "a/b/3" {
		t.Errorf("keys at the index of Begin: %v", got)
	}
	if got, want := names().([]string), []string{"a/1", "a/b", "a/b/"}; !slices.Equal(got, want) {
		t.Errorf("names at the index of Begin: %q, want %q", got, want)
	}
	if got := Ask[[]string](d.m, KeyNamesQuery{}); len(got) != 0 {
		t.Errorf("names after the deletion: %q", got)
	}
	if e := Ask[*fact.Entry](d.m, KeyQuery{"c"}); e != nil {
		t.Errorf("%v, want none", e)
	}
	if got := Ask[uint64](d.m, IndexQuery{}); got != d.m.keys.changes || got == 0 {
		t.Errorf("index %d", got)
	}
}

func TestRecheck(t *testing.T) {
	d := newDriver(t)
	d.line(wire.Code_OK, "open s ttl=1h")
	d.line(wire.Code_OK, "lock x s/9")
	atOnce := d.seq
	d.line(wire.Code_QUEUED, "lock x s/1 wait")
	held := d.seq
	d.line(wire.Code_QUEUED, "lock x s/2 wait")
	waiting := d.seq
	d.line(wire.Code_OK, "unlock x s/9 fence=1")
	d.line(wire.Code_OK, "acquire p s limit=3 permits=3")
	d.line(wire.Code_QUEUED, "acquire p s limit=3 permits=2 wait")
	permits := d.seq
	d.line(wire.Code_OK, "release p s fence=3")
	d.line(wire.Code_QUEUED, "acquire p s limit=3 permits=2 wait")
	refused := d.seq
	d.line(wire.Code_OK, "resize p limit=1")
	for seq, want := range map[uint64]*wire.Reply{
		held:    {Code: wire.Code_OK, Fence: 2, Holds: 1},
		waiting: nil,
		permits: {Code: wire.Code_OK, Fence: 4, Holds: 2},
		refused: {Code: wire.Code_LIMIT_MISMATCH, Limit: 1},
		99:      {Code: wire.Code_LIMIT_MISMATCH, Limit: 1},
	} {
		got := d.m.Recheck(wire.Ticket{Incarnation: d.inc, Seq: seq}, makeID("s"), "p", "")
		if !proto.Equal(got, want) || (got == nil) != (want == nil) {
			t.Errorf("ticket %d: %v, want %v", seq, got, want)
		}
	}
	if got := d.m.Acquisition(wire.Ticket{Incarnation: d.inc, Seq: atOnce}); !reflect.DeepEqual(got, Acquired{}) {
		t.Errorf("a request that was not queued: %+v", got)
	}
	for _, row := range []struct {
		session   wire.ID
		semaphore string
	}{{makeID("t"), "p"}, {makeID("s"), ""}, {makeID("s"), "q"}} {
		if r := d.m.Recheck(wire.Ticket{Incarnation: d.inc, Seq: refused}, row.session, row.semaphore, ""); r.Code != wire.Code_SESSION_EXPIRED {
			t.Errorf("%+v: %v", row, r)
		}
	}
	if r := d.m.Recheck(wire.Ticket{Incarnation: wire.ID{9}, Seq: refused}, makeID("s"), "p", ""); r.Code != wire.Code_SESSION_EXPIRED {
		t.Errorf("another incarnation: %v", r)
	}
}
