package grouptest

import (
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A bubble that hangs would end with its test binary's timeout, minutes later, and the failure
// that came first would never be reported: what a test has logged is printed when it ends.
// A bubble hangs while a goroutine of it waits for what is no event in it, such as a mutex or
// a connection of the operating system: virtual time stands still then, and what the goroutine
// waits for may need that time.

// watchdog ends the process when the bubble of a test hangs. It watches from outside of the
// bubble, in real time.
type watchdog struct {
	// every is how often it looks. A bubble hangs if, in hung looks in a row, no goroutine of it
	// runs, and the same ones wait, at the same places, for what is no event in it. Real time
	// alone proves nothing on a busy machine.
	every time.Duration
	hung  int
	// end is called with the report, and does not return.
	end func(report string)

	bubble  atomic.Pointer[string] // as stacks name it; nil: it has not begun
	failure failure
}

func newWatchdog() *watchdog {
	return &watchdog{every: 10 * time.Second, hung: 4, end: func(report string) { panic(report) }}
}

// watch begins to watch; what it returns ends that.
func (w *watchdog) watch(name string) (stop func()) {
	stopped := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		ticker := time.NewTicker(w.every)
		defer ticker.Stop()
		for last, same := w.stuck(), 0; ; {
			select {
			case <-stopped:
				return
			case <-ticker.C:
			}
			now := w.stuck()
			if same++; len(now) == 0 || !slices.Equal(now, last) {
				same = 0
			}
			if last = now; same >= w.hung {
				w.end(fmt.Sprintf("%s: the bubble hangs\n\nthe first failure: %s\n\nthe goroutines that keep its time from passing, and wait:\n\n%s\n",
					name, w.failure.get(), strings.Join(now, "\n\n")))
			}
		}
	})
	return func() { close(stopped); watching.Wait() }
}

// stuck returns the stacks of the goroutines that keep the bubble's time from passing, if
// all of them wait.
func (w *watchdog) stuck() (stacks []string) {
	for _, s := range w.goroutines() {
		head, _, _ := strings.Cut(s, "\n")
		switch {
		case running.MatchString(head):
			return nil
		case !strings.Contains(head, "(durable)"):
			stacks = append(stacks, s)
		}
	}
	slices.Sort(stacks)
	return stacks
}

var (
	running = regexp.MustCompile(`\[(running|runnable|syscall|waiting|preempted|copystack)\b`)
	minutes = regexp.MustCompile(`, \d+ minutes`)
)

// goroutines returns the stacks of the bubble's goroutines, without what changes while they
// wait.
func (w *watchdog) goroutines() (list []string) {
	bubble := w.bubble.Load()
	if bubble == nil {
		return nil
	}
	for s := range strings.SplitSeq(allStacks(), "\n\n") {
		if head, _, _ := strings.Cut(s, "\n"); inBubbleNamed(*bubble, head) {
			list = append(list, minutes.ReplaceAllString(s, ""))
		}
	}
	return list
}

// inBubbleNamed reports whether the head of a stack names the bubble.
func inBubbleNamed(bubble, head string) bool {
	_, rest, found := strings.Cut(head, bubble)
	return found && (rest == "" || rest[0] < '0' || rest[0] > '9')
}

func allStacks() string {
	for size := 1 << 20; ; size *= 2 {
		buf := make([]byte, size)
		if n := runtime.Stack(buf, true); n < size {
			return strings.TrimSpace(string(buf[:n]))
		}
	}
}

// enter names the bubble in which it is called.
func (w *watchdog) enter() {
	head := make([]byte, 128)
	head = head[:runtime.Stack(head, false)]
	name := regexp.MustCompile(`synctest bubble \d+`).FindString(string(head))
	w.bubble.Store(&name)
}

// failure is the first failure of a test.
type failure struct {
	mu   sync.Mutex
	text string // guarded by mu
}

func (f *failure) get() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.text == "" {
		return "none"
	}
	return f.text
}

// note keeps a failure, with the calls that led to it, if it is the first.
func (f *failure) note(text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.text != "" {
		return
	}
	f.text = text
	callers := make([]uintptr, 6)
	frames := runtime.CallersFrames(callers[:runtime.Callers(3, callers)])
	for {
		frame, more := frames.Next()
		f.text += fmt.Sprintf("\n\t%s:%d", frame.File, frame.Line)
		if !more {
			return
		}
	}
}

// noted is a test whose first failure is noted.
type noted struct {
	testing.TB
	first *failure
}

func (o noted) Error(args ...any) {
	o.Helper()
	o.first.note(fmt.Sprint(args...))
	o.TB.Error(args...)
}

func (o noted) Errorf(format string, args ...any) {
	o.Helper()
	o.first.note(fmt.Sprintf(format, args...))
	o.TB.Errorf(format, args...)
}

func (o noted) Fatal(args ...any) {
	o.Helper()
	o.first.note(fmt.Sprint(args...))
	o.TB.Fatal(args...)
}

func (o noted) Fatalf(format string, args ...any) {
	o.Helper()
	o.first.note(fmt.Sprintf(format, args...))
	o.TB.Fatalf(format, args...)
}
