package conclavehttp

import (
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// numbers is a listing without an end, of which it counts what is read.
func numbers(read *int) iter.Seq2[int, error] {
	return func(yield func(int, error) bool) {
		for *read = 1; yield(*read, nil); *read++ {
		}
	}
}

// One read of a pane looks at a bounded number of objects, and the next page goes on behind them.
func TestFirstRows_Bounded(t *testing.T) {
	read, cursor := 0, func(i int) string { return fmt.Sprint(i) }
	never := func(*int) bool { return false }
	r := &reading{until: time.Now().Add(time.Hour)}
	list, next, err := firstRows(r, numbers(&read), cursor, never)
	if len(list) > 0 || next != fmt.Sprint(maxLooked) || err != nil || read != maxLooked+1 || !r.cut {
		t.Errorf("%d rows, next %s, %v, %d read", len(list), next, err, read)
	}
	r = &reading{} // its time is over
	if _, next, _ := firstRows(r, numbers(&read), cursor, never); next != "1" || !r.cut {
		t.Errorf("next %q: a page without progress would be the last one", next)
	}
	r = newReading()
	list, next, _ = firstRows(r, numbers(&read), cursor, func(*int) bool { return true })
	if len(list) != rows || next != fmt.Sprint(rows) || r.cut {
		t.Errorf("%d rows, next %s", len(list), next)
	}
	r = newReading()
	list, _, _ = firstRows(r, numbers(&read), cursor, func(i *int) bool { return *i%100 == 0 })
	if len(list) != rows || list[rows-1] != 100*rows {
		t.Errorf("every hundredth: %v", list)
	}
}

// What reads many objects is read less often.
func TestQuery_LongReadsTakeLittleTime(t *testing.T) {
	for _, q := range []query{{kind: kindWaiting}, {kind: kindLocks, of: "x"}} {
		if d := q.pause(time.Second); d != 100*time.Second {
			t.Errorf("%+v: after a reading of a second: %v", q, d)
		}
	}
	if d := (query{kind: kindLocks}).pause(time.Second); d != refresh {
		t.Errorf("a page of a listing: %v", d)
	}
}

func TestValueOf(t *testing.T) {
	for value, want := range map[string]keyValue{
		"":                                {},
		"plain":                           {Text: "plain"},
		"a\x00":                           {Text: "61 00", Binary: true},
		"\xff\xfe":                        {Text: "ff fe", Binary: true},
		"line\n\x1b[31m\u009b2J":          {Text: `line\n\x1b[31m\u009b2J`},
		strings.Repeat("é", 150):          {Text: strings.Repeat("é", 100), More: true},
		"x" + strings.Repeat("é", 150):    {Text: "x" + strings.Repeat("é", 99), More: true},
		"x" + strings.Repeat("é", 99):     {Text: "x" + strings.Repeat("é", 99)},
		strings.Repeat("\x80", 300):       {Text: strings.TrimSuffix(strings.Repeat("80 ", maxBinary), " "), Binary: true, More: true},
		strings.Repeat("a", 199) + "\xf0": {Text: strings.TrimSuffix(strings.Repeat("61 ", maxBinary), " "), Binary: true, More: true},
	} {
		k := conclave.KeyInfo{Value: []byte(value)[:min(len(value), 256)], Size: len(value)}
		if got := valueOf(k); got != want {
			t.Errorf("%q is shown as %+v, want %+v", value, got, want)
		}
	}
}

func TestFolder(t *testing.T) {
	for prefix, want := range map[string]string{"": "", "a": "", "a/": "", "a/b": "a/", "a/b/": "a/", "/": "", "//": "/", "a//": "a/"} {
		if got := (answerData{Prefix: prefix}).Folder(); got != want {
			t.Errorf("%q is in %q, want %q", prefix, got, want)
		}
	}
}

// A holder that is seen no more is a former one, with its times as far as they are known.
func TestSeenHolders(t *testing.T) {
	var h seenHolders
	at := func(seconds int) time.Time { return time.Unix(int64(1000+seconds), 0) }
	session := conclave.SessionID{7}
	owner := func(label string, since int) conclave.LockOwner {
		return conclave.LockOwner{Label: label, Session: session, Since: time.Duration(since) * time.Second}
	}
	h.note(at(0), lockID{Name: "x"}, false, formerHolder{})
	h.note(at(1), lockID{Name: "x"}, true, formerHolder{Holder: owner("a", 1), Fence: 10})
	h.note(at(2), lockID{Name: "x"}, true, formerHolder{Holder: owner("a", 2), Fence: 10})
	h.note(at(1), lockID{Name: "x"}, false, formerHolder{}) // a slow reading
	if got := h.former(lockID{Name: "x"}, nil); len(got) != 0 {
		t.Errorf("the present holder is listed: %+v", got)
	}
	h.note(at(5), lockID{Name: "x"}, true, formerHolder{Holder: owner("b", 2), Fence: 11})
	h.note(at(100), lockID{Name: "x"}, false, formerHolder{})
	h.note(at(101), lockID{Name: "x"}, true, formerHolder{Holder: owner("b", -1), Fence: 12})
	h.note(at(102), lockID{Name: "x"}, false, formerHolder{})
	var got []string
	for _, f := range h.former(lockID{Name: "x"}, nil) {
		got = append(got, fmt.Sprint(f.Holder.Label, f.Fence, f.From.Unix()-1000, f.Seen.Unix()-1000, f.Until.Unix()-1000, f.Exact()))
	}
	want := []string{"b12 -62135597800 101 102 true", "b11 3 5 100 false", "a10 0 2 3 true"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%q, want %q", got, want)
	}
	ended := conclave.HistoryEvent{Kind: conclave.HistorySessionExpired, Session: session, Time: at(3)}
	for i, f := range h.former(lockID{Name: "x"}, []conclave.HistoryEvent{ended}) {
		if (f.Text() != "") != (i == 2) {
			t.Errorf("%s, %d: %q", f.Holder.Label, f.Fence, f.Text())
		}
	}
}

// Those that share a lock are one holder, whose end is not that of the first session.
func TestSeenHolders_Shared(t *testing.T) {
	var h seenHolders
	at := func(seconds int) time.Time { return time.Unix(int64(1000+seconds), 0) }
	for i, shared := range []int{1, 3, 2} {
		o := conclave.LockOwner{Session: conclave.SessionID{byte(i + 1)}}
		h.note(at(i), lockID{Name: "x"}, true, formerHolder{Holder: o, Shared: shared, Fence: 7})
	}
	h.note(at(3), lockID{Name: "x"}, true, formerHolder{Fence: 8})
	ended := conclave.HistoryEvent{Kind: conclave.HistorySessionExpired, Session: conclave.SessionID{1}, Time: at(3)}
	got := h.former(lockID{Name: "x"}, []conclave.HistoryEvent{ended})
	if len(got) != 1 || got[0].Shared != 3 || got[0].Holder.Session != ended.Session || got[0].Text() != "" {
		t.Errorf("%+v", got)
	}
}

// The holders of few locks are noted, and few of each.
func TestSeenHolders_Bounded(t *testing.T) {
	var h seenHolders
	for i := range 3 * maxNoted {
		for f := range 3 * maxFormer {
			h.note(time.Unix(int64(i), int64(f)), lockID{Name: fmt.Sprint(i)}, true, formerHolder{Fence: conclave.Fence(f + 1)})
		}
	}
	if len(h.locks) != maxNoted {
		t.Errorf("%d locks", len(h.locks))
	}
	if got := h.former(lockID{Name: fmt.Sprint(3*maxNoted - 1)}, nil); len(got) != maxFormer {
		t.Errorf("%d holders", len(got))
	}
	if got := h.former(lockID{Name: "0"}, nil); len(got) != 0 {
		t.Errorf("the lock that was read first has %d holders", len(got))
	}
}

// A cycle is shown as sessions, each with what it holds and what it waits for.
func TestSteps(t *testing.T) {
	a, b := conclave.LockOwner{SessionName: "a", Label: "a waits"}, conclave.LockOwner{SessionName: "b", Label: "b waits"}
	cycle := conclave.WaitCycle{
		{Lock: "of b", Waiter: a, Holder: conclave.LockOwner{Label: "b holds"}},
		{Lock: "of a", Election: true, Waiter: b, Holder: conclave.LockOwner{Label: "a holds"}},
	}
	steps := answerData{}.Steps(cycle)
	if len(steps) != 2 || steps[0].SessionName != "a" || steps[0].Holds != (heldName{"of a", true}) || steps[0].HoldsAs != "a holds" ||
		steps[0].Waits != (heldName{"of b", false}) || steps[0].WaitsFor != "a waits" || steps[1].Holds != (heldName{"of b", false}) {
		t.Errorf("%+v", steps)
	}
}

// That not all locks were looked at is shown also where none of those is waited for.
func TestWaiting_ShowsItsBound(t *testing.T) {
	templates, err := parseTemplates()
	if err != nil {
		t.Fatal(err)
	}
	b := newBoard(source{}, templates)
	locks := []waitedLock{{LockInfo: conclave.LockInfo{Name: "x<y"}, Longest: time.Minute}}
	for want, a := range map[string]answerData{
		"":                                    {},
		"x&lt;y":                              {Waited: locks},
		"7 more, which wait less long":        {Waited: locks, MoreWaited: 7},
		"None of the first 16\u202f384 locks": {Looked: 16384},
		"Of the first 16\u202f384 locks by name that begin with <code>a\\n</code>": {Waited: locks, Looked: 16384, Prefix: "a\n"},
	} {
		if html := string(b.html("waiting", a)); want == "" && strings.TrimSpace(html) != "" || !strings.Contains(html, want) {
			t.Errorf("%q is missing in\n%s", want, html)
		}
	}
}

// Whatever applications choose as names, labels and values is text in each part of the page.
func TestParts_EscapeHostileNames(t *testing.T) {
	templates, err := parseTemplates()
	if err != nil {
		t.Fatal(err)
	}
	b := newBoard(source{}, templates)
	for name, shown := range map[string]string{
		"<script>alert(1)</script>": "&lt;script&gt;alert(1)&lt;/script&gt;", `" onmouseover="x`: "&#34; onmouseover=&#34;x",
		"a\u202eb": `a\u202eb`, "\u009b31m\x1b[2J": `\u009b31m\x1b[2J`, "a\nb": `a\nb`,
	} {
		o := conclave.LockOwner{Node: 7, Client: true, Label: name, SessionName: name, Session: conclave.SessionID{1}}
		lock := conclave.LockInfo{Name: name, Held: true, Client: true, Label: name, SessionName: name}
		a := answerData{
			Prefix: name, Looked: 1, Waited: []waitedLock{{LockInfo: lock}},
			Cycles:      []conclave.WaitCycle{{{Lock: name, Waiter: o, Holder: o}, {Lock: name, Election: true, Waiter: o, Holder: o}}},
			Explanation: conclave.Explanation{Lock: name, Held: true, Holder: o, Queue: []conclave.LockOwner{o}, Cycle: conclave.WaitCycle{{Lock: name, Waiter: o, Holder: o}}},
			Former:      []formerHolder{{Holder: o}},
			Keys:        []conclave.KeyInfo{{Key: name, Value: []byte(name), Size: len(name)}, {Key: name, Folder: true}},
		}
		for _, part := range []string{"waiting", "cycles", "lock", "shared lock", "keys"} {
			a.Kind = kindKeys
			if part == "shared lock" {
				a.Explanation = conclave.Explanation{Lock: "x", Held: true, Shared: 1, Holders: []conclave.LockOwner{o}}
				part, a.Former = "lock", nil
			}
			html := string(b.html(kind(part).id(), a))
			if !strings.Contains(html, shown) || strings.Contains(html, "ZgotmplZ") {
				t.Errorf("%s: %q is missing in\n%s", part, shown, html)
			}
			for _, raw := range []string{"<script", "\u202e", "\u009b", "\x1b", `" onmouseover`} {
				if strings.Contains(html, raw) {
					t.Errorf("%s: %q is in\n%s", part, raw, html)
				}
			}
		}
	}
}

// What requests ask for and the group need not answer is not kept, whatever number of prefixes they have.
func TestBoard_IdlePanesOfRequests(t *testing.T) {
	h := Console(grouptest.Alone(t), nil)
	shown := query{kind: kindWaiting, prefix: "shown"}
	f := &following{queries: []query{shown}}
	h.board.show(f)
	defer h.board.hide(f)
	for i := range 1000 {
		if p := h.board.read(t.Context(), query{kind: kindWaiting, prefix: fmt.Sprint(i)}, h.reads); p.ID != string(kindWaiting) {
			t.Fatalf("%+v", p)
		}
	}
	h.board.read(t.Context(), shown, h.reads)
	if len(h.board.panes) != 1 || h.board.panes[shown].read.IsZero() {
		t.Errorf("%d panes are kept", len(h.board.panes))
	}
}
