package conclavehttp_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/conclavehttp"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// Locks with waiters come first, the longest wait before the others, whatever their names.
func TestConsole_WaitedFirst(t *testing.T) {
	t.Parallel()
	n := grouptest.Alone(t)
	holder := grouptest.MustSession(t, n, grouptest.Lasting())
	names := []string{"m/long", "z/longer", "a/short"}
	for _, name := range names {
		grouptest.MustLock(t, holder.FencedLock(name))
	}
	grouptest.MustLock(t, holder.FencedLock("b/none"))
	wantNot(t, serve(t, n, nil).page(), "Waited for")
	for _, name := range []string{"z/longer", "m/long", "a/short"} {
		waiting := grouptest.StartLock(t, n.FencedLock(name))
		defer waiting.Cancel()
	}
	site := serve(t, n, nil)
	waited := site.events("").await("waiting", ">a/short<")
	first, second, third := strings.Index(waited, ">z/longer<"), strings.Index(waited, ">m/long<"), strings.Index(waited, ">a/short<")
	if first < 0 || first > second || second > third {
		t.Errorf("the order is not that of the waits:\n%s", waited)
	}
	wantNot(t, waited, "b/none")
	waited = site.events("?prefix=m/").await("waiting", "m/long")
	wantNot(t, waited, "a/short")
	want(t, site.page(), "Waited for")
	for _, body := range []string{site.page("after", "a"), site.page("of", n.Status().ID.String()), site.page("show", "sessions")} {
		wantNot(t, body, "Waited for")
	}
}

// From a member, a client and a session a link leads to what it holds, and to nothing else.
func TestConsole_WhatItHolds(t *testing.T) {
	t.Parallel()
	n, err := conclave.Open(t.Context(), &conclave.Config{HeartbeatInterval: 10 * time.Millisecond, Name: "anna"})
	grouptest.Must(t, err)
	t.Cleanup(func() { grouptest.Kill(n) })
	c := grouptest.Dial(t, &conclave.ClientConfig{Name: "porter"}, n)
	hold := func(s *conclave.Session, name string) {
		grouptest.MustLock(t, s.FencedLock(name+"/lock"))
		grouptest.MustAcquire(t, s.Semaphore("shared", 9), 1)
		grouptest.MustCampaign(t, s.Election(name+"/election"), "")
		_, err := n.KV().Acquire(t.Context(), name+"/key", nil, s.ID())
		grouptest.Must(t, err)
	}
	mine, err := n.NewSession(t.Context(), &conclave.SessionConfig{Name: "mine"})
	grouptest.Must(t, err)
	other, err := n.NewSession(t.Context(), &conclave.SessionConfig{Name: "other"})
	grouptest.Must(t, err)
	theirs, err := c.NewSession(t.Context(), &conclave.SessionConfig{Name: "theirs"})
	grouptest.Must(t, err)
	hold(mine, "mine")
	hold(other, "other")
	hold(theirs, "theirs")
	put(t, n, "free", nil)
	site := serve(t, n, &conclavehttp.ConsoleOptions{ShowKeys: true})
	of := func(id any) string { return fmt.Sprintf(`of=%v&amp;show=locks#state"`, id) }
	want(t, site.page("show", "sessions"), of(n.Status().ID), of(c.ID()), of(mine.ID()), of(theirs.ID()))
	want(t, site.page(), of(c.ID()), of(mine.ID()))
	for id, names := range map[string][]string{
		n.Status().ID.String(): {"mine", "other"}, c.ID().String(): {"theirs"}, mine.ID().String(): {"mine"}, theirs.ID().String(): {"theirs"},
	} {
		for show, suffix := range map[string]string{"locks": "/lock<", "elections": "/election<", "keys": "/key<", "semaphores": "", "sessions": ""} {
			body := listing(site.page("show", show, "of", id))
			rows := 0
			for _, name := range []string{"mine", "other", "theirs"} {
				if strings.Contains(body, ">"+name+suffix) {
					rows++
				}
			}
			switch {
			case show == "semaphores" && strings.Count(body, "<small>fence") != len(names):
				t.Errorf("%s of %s: %d holders, want %d\n%s", show, id, strings.Count(body, "<small>fence"), len(names), body)
			case show != "semaphores" && show != "sessions" && rows != len(names):
				t.Errorf("%s of %s: %d rows, want those of %v\n%s", show, id, rows, names, body)
			case show == "sessions" && !strings.Contains(body, ">"+names[0]+"<"):
				t.Errorf("%s of %s: without %s\n%s", show, id, names[0], body)
			}
		}
	}
	want(t, site.page("of", n.Status().ID.String()), "What <bdi>anna</bdi> holds", `of=`+n.Status().ID.String()+`&amp;show=semaphores#state"`)
	for _, id := range []string{"x", "0000000000000000", strings.Repeat("0", 5000), "00000000-0000-0000-0000-000000000000", "<script>"} {
		if w, body := site.get("?of=" + id); w.StatusCode != http.StatusBadRequest || !strings.HasPrefix(w.Header.Get("Content-Type"), "text/plain") {
			t.Errorf("%.20s: %s, %s", id, w.Status, body)
		}
	}
}

// The pages of what a process holds begin where the one before has ended.
func TestConsole_WhatItHoldsByPages(t *testing.T) {
	t.Parallel()
	n := grouptest.Alone(t)
	mine, other := grouptest.MustSession(t, n, grouptest.Lasting()), grouptest.MustSession(t, n, grouptest.Lasting())
	for i := range 120 {
		grouptest.MustLock(t, other.FencedLock(fmt.Sprintf("x/%03d/other", i)))
		grouptest.MustLock(t, mine.FencedLock(fmt.Sprintf("x/%03d/mine", i)))
	}
	site := serve(t, n, nil)
	rows, pages := 0, 0
	for path := "?of=" + mine.ID().String(); path != ""; pages++ {
		_, body := site.get(path)
		rows += strings.Count(listing(body), "/mine<")
		wantNot(t, listing(body), "/other<")
		_, next, more := strings.Cut(listing(body), `<a rel="next" href="`)
		if path = ""; more {
			path, _, _ = strings.Cut(next, "#state")
			path = strings.ReplaceAll(path, "&amp;", "&")
		}
	}
	if rows != 120 || pages != 3 {
		t.Errorf("%d rows on %d pages", rows, pages)
	}
}

// Each listing says when a hold ends by its MaxHold, also of a session alone, and nothing where there is none.
func TestConsole_MaxHold(t *testing.T) {
	t.Parallel()
	n := grouptest.Alone(t)
	first, second := grouptest.MustSession(t, n, grouptest.Lasting()), grouptest.MustSession(t, n, grouptest.Lasting())
	limited := conclave.MaxHold(3 * time.Hour)
	grouptest.MustLock(t, first.FencedLock("alone", limited))
	grouptest.MustLock(t, first.FencedLock("endless"))
	for s, opts := range map[*conclave.Session][]conclave.LockOption{first: nil, second: {limited}} {
		_, err := s.RWLock("both", opts...).RLock(t.Context())
		grouptest.Must(t, err)
	}
	grouptest.MustAcquire(t, first.Semaphore("permits", 2).WithMaxHold(3*time.Hour-30*time.Second), 1)
	grouptest.MustAcquire(t, second.Semaphore("permits", 2), 1)
	waiting := grouptest.StartLock(t, n.FencedLock("alone"))
	defer waiting.Cancel()
	site := serve(t, n, nil)
	const ends = ">ends in 2 h 59 min<"
	of := func(s *conclave.Session, show string) string {
		return listing(site.page("of", s.ID().String(), "show", show))
	}
	for _, row := range []struct {
		name, body string
		times      int
	}{
		{"locks of the first", of(first, "locks"), 1},
		{"locks of the second", of(second, "locks"), 1},
		{"permits of the first", of(first, "semaphores"), 1},
		{"permits of the second", of(second, "semaphores"), 0},
		{"permits", listing(site.page("show", "semaphores")), 1},
		{"what is waited for", site.events("").await("waiting", ">alone<"), 1},
		{"the holders of a shared lock", site.page("lock", "both", "show", "sessions"), 1},
		{"the holder of no end", site.page("lock", "endless", "show", "sessions"), 0},
	} {
		if got := strings.Count(row.body, ends); got != row.times {
			t.Errorf("%s: %d holds end, want %d:\n%s", row.name, got, row.times, row.body)
		}
	}
	want(t, site.page("lock", "alone"), "<dt>ends</dt><dd>in 2 h 59 min at the latest, by its MaxHold</dd>")
}

// A lock that is shared is held by each that shares it: its row says by how many, and its explanation lists them.
func TestConsole_Shared(t *testing.T) {
	t.Parallel()
	n := grouptest.Alone(t)
	first, second := grouptest.MustSession(t, n, grouptest.Lasting()), grouptest.MustSession(t, n, grouptest.Lasting())
	for i, s := range []*conclave.Session{first, second} {
		_, err := s.RWLock("x", conclave.WithLabel(fmt.Sprint("reader ", i))).RLock(t.Context())
		grouptest.Must(t, err)
	}
	site := serve(t, n, &conclavehttp.ConsoleOptions{
		Audit:     slog.New(slog.NewTextHandler(io.Discard, nil)),
		Authorize: func(*http.Request, conclavehttp.Act) (string, error) { return "olga", nil },
	})
	want(t, listing(site.page()), "reader 0", "shared, with 1 other<")
	for i, s := range []*conclave.Session{first, second} {
		body := listing(site.page("of", s.ID().String()))
		want(t, body, fmt.Sprint("reader ", i), "shared, with 1 other<")
		wantNot(t, body, fmt.Sprint("reader ", 1-i))
	}
	waiting := grouptest.StartLock(t, n.FencedLock("x"))
	defer waiting.Cancel()
	html := site.events("?lock=x").await("lock", "Queue: 1 waiting")
	want(t, html, "by 2 holders, with fence", "reader 0", "reader 1", first.ID().String()+" --force", second.ID().String()+" --force")
	want(t, site.events("").await("waiting", ">x<"), "shared, with 1 other<")
}

// A lock that is held shared shows the lock-delay of another one that has shared it, which keeps exclusive requests waiting.
func TestConsole_SharedInLockDelay(t *testing.T) {
	t.Parallel()
	n := grouptest.Alone(t)
	lost := grouptest.MustSession(t, n, &conclave.SessionConfig{LockDelay: time.Minute})
	for _, l := range []*conclave.RWLock{n.RWLock("x"), lost.RWLock("x")} {
		_, err := l.RLock(t.Context())
		grouptest.Must(t, err)
	}
	grouptest.Must(t, n.CloseSession(t.Context(), lost.ID()))
	site := serve(t, n, nil)
	want(t, listing(site.page()), ">shared<", ">lock-delay<")
	want(t, site.events("?lock=x").await("lock", "by 1 holder, with fence"), ">lock-delay<")
}

// What is held or waited for as one of several locks is shown with how many these are, and whether the lock is reserved.
func TestConsole_Sets(t *testing.T) {
	t.Parallel()
	n := grouptest.Alone(t)
	_, err := n.LockSet([]string{"x", "y"}, conclave.Shared("z")).Lock(t.Context())
	grouptest.Must(t, err)
	site := serve(t, n, nil)
	want(t, listing(site.page()), "set of 3")
	want(t, site.page("lock", "x"), "set of 3")
	want(t, site.page("lock", "z"), "by 1 holder, with fence", "set of 3")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _, _ = n.LockSet([]string{"a", "x"}).Lock(ctx) }()
	grouptest.AwaitWaiters(t, n.FencedLock("x"), 1)
	want(t, site.page("lock", "a"), "set of 2</em>")
	for range 4 {
		a := n.FencedLock("a")
		grouptest.MustLock(t, a)
		grouptest.MustUnlock(t, a)
	}
	site.events("?lock=a").await("lock", "set of 2, reserved</em>")
	want(t, site.events("").await("waiting", ">x<"), "set of 3")
}

// What held a lock before is shown with its times, as far as a browser has looked.
func TestConsole_LastHolders(t *testing.T) {
	t.Parallel()
	n := grouptest.Alone(t)
	site := serve(t, n, nil)
	want(t, site.page("lock", "x"), "None was seen")
	events := site.events("?lock=x")
	s := grouptest.MustSession(t, n, grouptest.Lasting())
	first := s.FencedLock("x", conclave.WithLabel("first run"))
	fence := grouptest.MustLock(t, first)
	events.await("lock", "first run")
	grouptest.Must(t, first.Unlock(t.Context()))
	html := events.await("lock", "Fence</th><th class=\"n\">From")
	_, former, _ := strings.Cut(html, "Last holders")
	want(t, former, "first run", fence.String())
	grouptest.MustLock(t, s.FencedLock("x"))
	events.await("lock", "lease")
	grouptest.Must(t, n.CloseSession(t.Context(), s.ID()))
	events.await("lock", "its session was closed by force")
}

// The group has a name, which each page shows.
func TestConsole_GroupName(t *testing.T) {
	n, err := conclave.Open(t.Context(), &conclave.Config{Group: "orders <b>\u202e", HeartbeatInterval: 10 * time.Millisecond})
	grouptest.Must(t, err)
	t.Cleanup(func() { grouptest.Kill(n) })
	want(t, serve(t, n, nil).page(), `orders &lt;b&gt;\u202e</bdi>`)
}

// The page shows until when certificates are valid, and warns where it is seen.
func TestConsole_Certificates(t *testing.T) {
	t.Parallel()
	n := grouptest.Alone(t)
	day := 24 * time.Hour
	at := func(d time.Duration) time.Time { return time.Now().Add(d) }
	page := func(certificate, authorities time.Time) string {
		return serve(t, n, &conclavehttp.ConsoleOptions{Certificates: func() (time.Time, time.Time) { return certificate, authorities }}).page()
	}
	wantNot(t, serve(t, n, nil).page(), "certificate")
	wantNot(t, page(time.Time{}, time.Time{}), "certificate")
	good := page(at(90*day), at(1000*day))
	want(t, good, "until "+at(90*day).Format("2006-01-02"), "until "+at(1000*day).Format("2006-01-02"))
	wantNot(t, good, "renew it", "has expired")
	want(t, page(at(10*day+time.Minute), at(1000*day)), "certificate expires in 10 days: renew it", `<span class="state warn">10 days left</span>`)
	want(t, page(at(90*day), at(-time.Hour)), "authorities that this node trusts has expired", `<span class="state bad">expired</span>`)
}
