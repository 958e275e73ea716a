package logqueue

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// lines is a handler that keeps the lines, and calls before with each first.
type lines struct {
	mu     sync.Mutex
	text   bytes.Buffer
	before func(slog.Record)
	level  slog.LevelVar
}

func (l *lines) inner() slog.Handler {
	return slog.NewTextHandler(&l.text, &slog.HandlerOptions{Level: &l.level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})
}

func (l *lines) got() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Split(strings.TrimSpace(l.text.String()), "\n")
}

func (l *lines) logger() *slog.Logger { return slog.New(&hooked{l, l.inner()}) }

type hooked struct {
	of *lines
	slog.Handler
}

func (h *hooked) Handle(ctx context.Context, r slog.Record) error {
	if h.of.before != nil {
		h.of.before(r)
	}
	h.of.mu.Lock()
	defer h.of.mu.Unlock()
	return h.Handler.Handle(ctx, r)
}

func (h *hooked) WithAttrs(a []slog.Attr) slog.Handler {
	return &hooked{h.of, h.Handler.WithAttrs(a)}
}
func (h *hooked) WithGroup(name string) slog.Handler {
	return &hooked{h.of, h.Handler.WithGroup(name)}
}

func want(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got lines\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Lines arrive in order, with the attributes and groups of their loggers, before Close returns.
func TestQueue_Order(t *testing.T) {
	var l lines
	log, q := New(l.logger())
	log.Info("one", "a", 1)
	log.With("b", "2").WithGroup("g").Warn("two", "c", time.Second)
	log.Debug("none")
	log.Error("three")
	q.Close(time.Minute)
	log.Info("after Close")
	want(t, l.got(), `level=INFO msg=one a=1`, `level=WARN msg=two b=2 g.c=1s`, `level=ERROR msg=three`)
}

// While the handler blocks no call of the logger does, the lines have a bound, and what was
// dropped is counted where it is missing.
func TestQueue_HandlerBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l lines
		release := make(chan struct{})
		l.before = func(slog.Record) { <-release }
		log, q := New(l.logger())
		const n = 3 * maxLines
		for i := range n {
			log.Info("line", "i", i)
			synctest.Wait() // the first one has reached the handler
		}
		dropped := q.Dropped()
		if dropped == 0 || dropped > n-maxLines {
			t.Errorf("%d of %d lines dropped", dropped, n)
		}
		close(release)
		synctest.Wait()
		log.Info("after")
		q.Close(time.Minute)
		got := l.got()
		report := fmt.Sprintf(`level=WARN msg="log lines dropped: the Logger blocks or panics" lines=%d`, dropped)
		want(t, got[n-int(dropped)-1:], fmt.Sprintf("level=INFO msg=line i=%d", n-int(dropped)-1), report, "level=INFO msg=after")
	})
}

// Long texts count by their bytes.
func TestQueue_BoundsBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l lines
		release := make(chan struct{})
		l.before = func(slog.Record) { <-release }
		log, q := New(l.logger())
		long := strings.Repeat("x", maxBytes/8)
		for range 20 {
			log.Info("line", slog.Group("g", "text", long))
		}
		if n := q.Dropped(); n < 12 {
			t.Errorf("%d of 20 lines of %d bytes dropped, and at most 8 fit", n, len(long))
		}
		close(release)
		q.Close(time.Minute)
	})
}

// Close waits for the handler for its limit and no longer; then the handler is not called any more.
func TestQueue_CloseIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l lines
		release := make(chan struct{})
		l.before = func(slog.Record) { <-release }
		log, q := New(l.logger())
		log.Info("one")
		log.Info("two")
		synctest.Wait()
		began := time.Now()
		q.Close(time.Second)
		if took := time.Since(began); took != time.Second {
			t.Errorf("Close took %v", took)
		}
		close(release)
		synctest.Wait()
		want(t, l.got(), "level=INFO msg=one")
	})
}

// A handler that panics, or ends its goroutine, costs its own line.
func TestQueue_HandlerPanics(t *testing.T) {
	for quoted, fail := range map[string]func(){
		`"a bug"`: func() { panic("a bug") },
		`"none: the handler ended its goroutine"`: runtime.Goexit,
	} {
		t.Run(quoted, func(t *testing.T) {
			var l lines
			l.before = func(r slog.Record) {
				if r.Message == "two" {
					fail()
				}
			}
			log, q := New(l.logger())
			for _, m := range []string{"one", "two", "three"} {
				log.Info(m)
			}
			q.Close(time.Minute)
			want(t, l.got(), "level=INFO msg=one", "level=INFO msg=three",
				`level=WARN msg="log lines dropped: the Logger blocks or panics" lines=1 panic=`+quoted)
		})
	}
}

// strict is a handler each of whose functions fails the test on the caller's goroutine.
type strict struct {
	slog.Handler
	calls *atomic.Int64
	wait  chan struct{}
}

func (s strict) block() { s.calls.Add(1); <-s.wait }

func (s strict) Enabled(ctx context.Context, l slog.Level) bool {
	s.block()
	return s.Handler.Enabled(ctx, l)
}

func (s strict) Handle(ctx context.Context, r slog.Record) error {
	s.block()
	return s.Handler.Handle(ctx, r)
}

func (s strict) WithAttrs(a []slog.Attr) slog.Handler { s.block(); return s.Handler.WithAttrs(a) }
func (s strict) WithGroup(n string) slog.Handler      { s.block(); return s.Handler.WithGroup(n) }

type value struct{ strict }

func (v value) LogValue() slog.Value { v.block(); return slog.StringValue("value") }
func (v value) String() string       { v.block(); return "value" }

type failure struct{ strict }

func (f failure) Error() string { f.block(); return "failure" }

// No function of the handler, or of a value, is called on the goroutine that logs.
func TestQueue_NoCallByTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := strict{slog.NewTextHandler(io.Discard, nil), new(atomic.Int64), make(chan struct{})}
		log, q := New(slog.New(s))
		derived := log.With("value", value{s}).WithGroup("g").With("more", 1)
		for range 2000 {
			if !log.Enabled(t.Context(), slog.LevelDebug) {
				t.Fatal("a level is known that the handler was not asked about")
			}
			derived.Info("line", "value", value{s}, "error", failure{s}, slog.Group("g", "value", value{s}))
			log.Debug("line", "value", fmt.Stringer(value{s}))
		}
		synctest.Wait()
		if n := s.calls.Load(); n != 1 {
			t.Errorf("%d calls, want one, that blocks", n)
		}
		close(s.wait)
		q.Close(time.Minute)
	})
}

// A level that was disabled is asked about again, once a second at most, and costs no memory.
func TestQueue_LevelChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l lines
		log, q := New(l.logger())
		log.Debug("one")
		synctest.Wait()
		l.level.Set(slog.LevelDebug)
		time.Sleep(askAgain)
		log.Debug("two") // asks
		synctest.Wait()
		log.Debug("three")
		synctest.Wait()
		l.level.Set(slog.LevelInfo)
		log.Debug("four")
		synctest.Wait()
		log.Debug("five")
		if n := testing.AllocsPerRun(100, func() { log.Debug("six") }); n > 0 {
			t.Errorf("%v allocations for a level that is disabled", n)
		}
		q.Close(time.Minute)
		want(t, l.got(), "level=DEBUG msg=three")
	})
}

// A nil Logger costs nothing, and a nil Queue is valid.
func TestQueue_NoLogger(t *testing.T) {
	for _, to := range []*slog.Logger{nil, slog.New(slog.DiscardHandler)} {
		log, q := New(to)
		if q != nil || log.Enabled(t.Context(), slog.LevelError) {
			t.Errorf("a queue for %v", to)
		}
		q.Close(time.Minute)
		if q.Dropped() != 0 {
			t.Error("lines dropped")
		}
	}
}

// A burst leaves no goroutine behind, also without Close.
func TestQueue_GoroutineEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // which waits for all goroutines
		var l lines
		log, _ := New(l.logger())
		for range 100 {
			log.Info("line")
		}
	})
}

// nasty is a value to panic with, whose text cannot be had.
type nasty struct{}

func (nasty) String() string { runtime.Goexit(); return "" }

// A handler that panics with a value whose text ends the goroutine costs its own line as well.
func TestQueue_PanicEndsGoroutine(t *testing.T) {
	var l lines
	first := true
	l.before = func(slog.Record) {
		if first {
			first = false
			panic(nasty{})
		}
	}
	log, q := New(l.logger())
	log.Info("one")
	log.Info("two")
	q.Close(time.Minute)
	if got := l.got(); !slices.Contains(got, "level=INFO msg=two") {
		t.Errorf("got lines %q", got)
	}
}
