package leaseclock

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// fakeSource is a machine that a test runs and suspends.
type fakeSource struct {
	running, suspended atomic.Int64
	looks              atomic.Int64
	looking            func() // called when the suspended time was read, and before it is returned
}

func (f *fakeSource) run(d time.Duration)     { f.running.Add(int64(d)) }
func (f *fakeSource) suspend(d time.Duration) { f.suspended.Add(int64(d)) }

func (f *fakeSource) Running() time.Duration { return time.Duration(f.running.Load()) }

func (f *fakeSource) Suspended(_, _ time.Duration) time.Duration {
	f.looks.Add(1)
	d := time.Duration(f.suspended.Load())
	if f.looking != nil {
		f.looking()
	}
	return d
}

// newClock returns the clock of a machine that had run for a day and been suspended for
// an hour before, and that a caller has just looked at.
func newClock() (*Clock, *fakeSource) {
	f := new(fakeSource)
	f.run(24 * time.Hour)
	f.suspend(time.Hour)
	c := New(f)
	f.looks.Store(0)
	return c, f
}

func wantNow(t *testing.T, c *Clock, want time.Duration) {
	t.Helper()
	if got := c.Now(); got != Instant(want) {
		t.Errorf("the clock says %v, want %v", time.Duration(got), want)
	}
}

func wantLooks(t *testing.T, f *fakeSource, want int64) {
	t.Helper()
	if got := f.looks.Load(); got != want {
		t.Errorf("%d looks at the suspended time, want %d", got, want)
	}
}

func TestClock_BeginsAtZero(t *testing.T) {
	c, f := newClock()
	wantNow(t, c, 0)
	f.run(time.Minute)
	wantNow(t, c, time.Minute)
	if left := c.Until(Instant(time.Hour)); left != 59*time.Minute {
		t.Errorf("%v until the first hour", left)
	}
}

func TestClock_SuspensionNoticedByLook(t *testing.T) {
	c, f := newClock()
	f.suspend(time.Minute)
	if got := c.Look(); got != Instant(time.Minute) {
		t.Errorf("the look says %v", time.Duration(got))
	}
	wantNow(t, c, time.Minute)
	wantLooks(t, f, 1)
}

// Within a millisecond of running time callers make no system call, and a suspension is
// not noticed. The first caller after it notices.
func TestClock_SuspensionNoticedByCallerAfterMillisecond(t *testing.T) {
	c, f := newClock()
	f.suspend(time.Minute)
	for passed := time.Duration(0); passed < lookInterval; passed += lookInterval / 10 {
		wantNow(t, c, passed)
		f.run(lookInterval / 10)
	}
	wantNow(t, c, lookInterval)
	wantLooks(t, f, 0)
	f.run(1)
	wantNow(t, c, time.Minute+lookInterval+1)
	wantLooks(t, f, 1)
}

// Callers make at most one look in a millisecond, however often they ask. A look of the
// loop counts.
func TestClock_LooksOnceAMillisecond(t *testing.T) {
	c, f := newClock()
	for range 5000 {
		f.run(lookInterval / 100)
		c.Now()
	}
	if n := f.looks.Load(); n < 45 || n > 50 {
		t.Errorf("%d looks in 50 ms", n)
	}
	f.looks.Store(0)
	for range 50 {
		c.Look()
		f.run(lookInterval)
		c.Now()
	}
	wantLooks(t, f, 50)
}

// A look counts from its beginning: what happens while the source is read may be missing.
func TestClock_SuspendedDuringLook(t *testing.T) {
	c, f := newClock()
	f.looking = func() {
		f.looking = nil
		f.suspend(time.Minute)
		f.run(2 * lookInterval)
	}
	c.Look()
	wantNow(t, c, time.Minute+2*lookInterval)
	wantLooks(t, f, 2)
}

// A look that is overtaken by a later one does not turn the clock back, nor does it pass
// for a newer one.
func TestClock_LookOvertaken(t *testing.T) {
	c, f := newClock()
	f.looking = func() {
		f.looking = nil
		f.run(2 * lookInterval)
		f.suspend(time.Minute)
		c.Look()
	}
	if got, want := c.Look(), Instant(time.Minute+2*lookInterval); got != want {
		t.Errorf("the earlier look says %v, want %v", time.Duration(got), time.Duration(want))
	}
	wantNow(t, c, time.Minute+2*lookInterval)
	wantLooks(t, f, 2)
}

// Callers are concurrent, and the machine is suspended again and again: no call returns an earlier time than one
// that returned before it began, and none a later time than has passed.
func TestClock_NeverBackwards(t *testing.T) {
	c, f := newClock()
	var latest atomic.Int64
	var all sync.WaitGroup
	for caller := range 8 {
		all.Go(func() {
			for i := range 2000 {
				switch (caller + i) % 8 {
				case 0:
					f.suspend(time.Second)
				default:
					f.run(lookInterval / 5)
				}
				before := latest.Load()
				now := c.Now()
				if caller == 0 {
					now = c.Look()
				}
				passed := time.Duration(f.running.Load()+f.suspended.Load()) - 25*time.Hour
				if int64(now) < before || now > Instant(passed) {
					t.Errorf("the clock says %v after %v, and %v have passed", time.Duration(now), time.Duration(before), passed)
				}
				raise(&latest, time.Duration(now))
			}
		})
	}
	all.Wait()
}
