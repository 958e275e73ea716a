package conclavehttp

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-go/conclave"
)

func TestPacer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, began := newPacer(100*time.Millisecond), time.Now()
		for range 10 {
			if err := p.wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if d := time.Since(began); d != 900*time.Millisecond {
			t.Errorf("10 turns in %v", d)
		}
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		var err error
		turns := 0
		for ; !errors.Is(err, errBusyConsole); turns++ {
			err = p.wait(cancelled)
		}
		if turns < 20 || turns > 23 {
			t.Errorf("%d requests wait", turns)
		}
	})
}

// follow is the stream of a page.
func follow(v view) *following { return &following{group: v.Group, queries: v.queries()} }

// Browsers that look at the same share one pane, which ends with the last of them.
func TestBoard_SharesPanes(t *testing.T) {
	b := newBoard(source{}, nil)
	same, other := follow(view{Show: kindLocks}), follow(view{Show: kindLocks, Prefix: "x", Lock: "x"})
	for range 100 {
		b.show(same)
	}
	b.show(other)
	if len(b.panes) != 7 { // two listings, with two of waited locks, the cycles, the settings, and an explanation
		t.Errorf("%d panes", len(b.panes))
	}
	// The one that has waited longest is the next.
	for q := range b.panes {
		b.put(q, "x", time.Now(), true)
	}
	b.panes[same.queries[0]].read = time.Now().Add(-time.Minute)
	if q, at := b.due(); q == nil || *q != same.queries[0] || at.After(time.Now()) {
		t.Errorf("%v is due", q)
	}
	for range 100 {
		b.hide(same)
	}
	b.hide(other)
	if q, _ := b.due(); q != nil {
		t.Errorf("%v is due for no browser", q)
	}
	b.sweep(time.Now().Add(keepPane + time.Minute))
	if len(b.panes) != 0 {
		t.Errorf("%d panes are left", len(b.panes))
	}
}

func TestQuery_CyclesTakeLittleTime(t *testing.T) {
	q := query{kind: kindCycles}
	if d := q.pause(time.Second); d != 100*time.Second {
		t.Errorf("after a search of a second: %v", d)
	}
	if d := q.pause(time.Millisecond); d != slowly {
		t.Errorf("after a search of a millisecond: %v", d)
	}
}

func TestText(t *testing.T) {
	for _, c := range [][2]string{
		{number(0), "0"}, {number(999), "999"}, {number(1000), "1\u202f000"}, {number(1234567), "1\u202f234\u202f567"}, {number(-1000), "−1\u202f000"},
		{count(1, "check"), "1 check"}, {count(2, "check"), "2 checks"},
		{ago(-1), "?"}, {ago(1500 * time.Millisecond), "1 s"}, {ago(125 * time.Second), "2 min 5 s"}, {ago(50 * time.Hour), "2 days"},
		{shortDuration(conclave.NoTTL), "none"}, {fullDuration(0), "never"}, {fullDuration(time.Minute), "1m0s"},
	} {
		if c[0] != c[1] {
			t.Errorf("%q; want %q", c[0], c[1])
		}
	}
}

// The chart shows what was measured between two samples.
func TestChart(t *testing.T) {
	var c chart
	at := time.Unix(1000, 0)
	metrics := func(grants, slow uint64) conclave.Metrics {
		h := conclave.Histogram{Bounds: []float64{0.001, 0.01, 0.1}, Counts: []uint64{grants - slow, 0, slow, 0}}
		return conclave.Metrics{Calls: []conclave.CallMetrics{
			{Kind: conclave.CallLock, Results: map[conclave.CallResult]uint64{conclave.ResultOK: grants, conclave.ResultCanceled: 5000}},
			{Kind: conclave.CallUnlock, Seconds: h},
		}}
	}
	c.add(at, metrics(0, 0))
	if p := c.plot(at); !p.Empty {
		t.Errorf("one sample is no measurement: %+v", p)
	}
	c.add(at.Add(time.Second), metrics(500, 0))
	c.add(at.Add(2*time.Second), metrics(1500, 100))
	p := c.plot(at.Add(2 * time.Second))
	if p.Grants != "1\u202f000" || p.GrantsMax != "1\u202f000" || p.P50 != "0.56 ms" || p.P99 != "91 ms" {
		t.Errorf("%+v", p)
	}
	if want := "M238.0 60V30.0L240.0 1.0V60Z"; p.Area != want {
		t.Errorf("the area is %s; want %s", p.Area, want)
	}
	c.add(at.Add(time.Minute), metrics(1500, 100)) // no browser was connected meanwhile
	c.add(at.Add(time.Minute+time.Second), metrics(1502, 100))
	if p := c.plot(at.Add(time.Minute + time.Second)); p.Grants != "2.0" || len(c.points) != 3 {
		t.Errorf("after a gap: %+v", p)
	}
	c.add(at.Add(time.Hour), metrics(1502, 100))
	if len(c.points) != 0 {
		t.Errorf("%d points are older than the chart", len(c.points))
	}
}

// Two samples that are close together say nothing about a second.
func TestChart_SamplesCloseTogether(t *testing.T) {
	var c chart
	at := time.Unix(1000, 0)
	metrics := func(grants uint64) conclave.Metrics {
		return conclave.Metrics{Calls: []conclave.CallMetrics{
			{Kind: conclave.CallLock, Results: map[conclave.CallResult]uint64{conclave.ResultOK: grants}},
		}}
	}
	c.add(at, metrics(0))
	c.add(at.Add(50*time.Microsecond), metrics(1))
	c.add(at.Add(time.Second), metrics(10))
	if p := c.plot(at.Add(time.Second)); p.Grants != "10" || p.GrantsMax != "10" {
		t.Errorf("10 grants in a second: %+v", p)
	}
}

// What was measured before a gap is not the present.
func TestChart_NoPresentAfterGap(t *testing.T) {
	var c chart
	at := time.Unix(1000, 0)
	m := conclave.Metrics{Calls: []conclave.CallMetrics{
		{Kind: conclave.CallLock, Results: map[conclave.CallResult]uint64{conclave.ResultOK: 500}},
	}}
	c.add(at, conclave.Metrics{})
	c.add(at.Add(time.Second), m)
	if p := c.plot(at.Add(time.Second)); p.Grants != "500" {
		t.Errorf("%+v", p)
	}
	c.add(at.Add(time.Minute), m)
	if p := c.plot(at.Add(time.Minute)); p.Grants != "–" {
		t.Errorf("after a minute without a browser: %+v", p)
	}
}

// A browser that comes back gets nothing that was read long before.
func TestBoard_ForgetsOldPanes(t *testing.T) {
	b := newBoard(source{}, nil)
	b.latest = new(snapshot)
	f := follow(view{Show: kindLocks})
	b.show(f)
	b.put(f.queries[0], "held by a", time.Now(), true)
	b.hide(f)
	b.panes[f.queries[0]].read = time.Now().Add(-time.Hour)
	b.show(f)
	if parts := b.news(f); len(parts) > 0 {
		t.Errorf("%v is an hour old", parts)
	}
}

// That the next failure stops the group is no good news.
func TestClassOf_Redundancy(t *testing.T) {
	for voters, class := range map[int]string{-1: "bad", 0: "warn", 1: "good"} {
		if got := classOf(conclave.HistoryEvent{Kind: conclave.HistoryRedundancy, Voters: voters}); got != class {
			t.Errorf("%d more may fail: %s, want %s", voters, got, class)
		}
	}
}

// Many ends of sessions do not evict what has happened to the members from the timeline, as
// they do not from the history.
func TestTimeline_KeepsMembers(t *testing.T) {
	events := []conclave.HistoryEvent{{Seq: 1, Kind: conclave.HistoryLeader, Member: 1}}
	for i := range uint64(2 * maxTimeline) {
		events = append(events, conclave.HistoryEvent{Seq: 2 + i, Kind: conclave.HistorySessionExpired})
	}
	shown := latest(foldElections(events))
	if len(shown) != maxTimeline+1 || shown[0].Seq != 1 || shown[1].Seq != maxTimeline+2 {
		t.Errorf("%d events: %+v", len(shown), shown[:2])
	}
}

// Processes on one host have the same name by default.
func TestMemberNames_Same(t *testing.T) {
	names := namesIn([]conclave.Member{{ID: 0xa1, Name: "host"}, {ID: 0xb2 << 56, Name: "host"}, {ID: 3, Name: "other"}, {ID: 4}, {ID: 5}})
	for id, want := range map[conclave.MemberID]string{
		0xa1: "host (00000000…)", 0xb2 << 56: "host (b2000000…)", 3: "other", 4: "0000000000000004", 6: "0000000000000006", 0: "",
	} {
		if got := names.of(id); got != want {
			t.Errorf("%v: %q, want %q", id, got, want)
		}
	}
}

// A request that was slow to ask for the node must not replace the console of a later node.
func TestMux_NodeReplacedWhileAsked(t *testing.T) {
	first, second := new(conclave.Node), new(conclave.Node)
	asked := make(chan chan *conclave.Node)
	h := Mux(func() *conclave.Node {
		answer := make(chan *conclave.Node)
		asked <- answer
		return <-answer
	}, nil)
	begin := func() (answer func(*conclave.Node) *ConsoleHandler) {
		got := make(chan *ConsoleHandler, 1)
		go func() { got <- h.current() }()
		node := <-asked
		return func(n *conclave.Node) *ConsoleHandler { node <- n; return <-got }
	}
	console := func(n *conclave.Node) *ConsoleHandler { return begin()(n) }
	if console(nil).node != nil {
		t.Error("it has a node")
	}
	slow := begin()
	c := console(first)
	if got := slow(nil); got != c || c.node != first || c.isClosed() {
		t.Errorf("the console of %p, want %p; closed: %v", got.node, first, c.isClosed())
	}
	if next := console(second); next.node != second || !c.isClosed() {
		t.Errorf("the console of %p, want %p; the one before is closed: %v", next.node, second, c.isClosed())
	}
}

// askedAudit is a handler of slog that counts how often it is asked.
type askedAudit struct {
	slog.Handler
	asked *int
}

func (a askedAudit) Enabled(context.Context, slog.Level) bool { *a.asked++; return true }

// The application's audit log, which may block, is asked when a Mux is made, and not while requests and Close wait for a
// console.
func TestMux_AuditNotAsked(t *testing.T) {
	audit := askedAudit{slog.DiscardHandler, new(int)}
	h := Mux(func() *conclave.Node { return nil }, &MuxOptions{Console: &ConsoleOptions{
		Authorize: func(*http.Request, Act) (string, error) { return "", nil }, Audit: slog.New(audit),
	}})
	before := *audit.asked
	if c := h.current(); !c.board.canAct || *audit.asked != before {
		t.Errorf("it offers acts: %v, after the log was asked %d times and %d before", c.board.canAct, *audit.asked, before)
	}
}

// What is recorded of a request that names no member needs no list of the members.
func TestRecorder_NoMember(t *testing.T) {
	lines := new(strings.Builder)
	h := &ConsoleHandler{opts: ConsoleOptions{Audit: slog.New(slog.NewTextHandler(lines, nil))}}
	h.recorder(httptest.NewRequest("POST", "/act", nil), Act{Kind: ActCloseSession}, "x")("", "refused", nil) // it has no node
	if !strings.Contains(lines.String(), "act=close-session target=x") {
		t.Error(lines)
	}
}
