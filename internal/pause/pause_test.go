package pause

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-go/conclave/internal/leaseclock"
)

// stopped is a source of a machine's time in which the process may not run: the bubble's timers stand still then.
type stopped struct {
	began    time.Time
	duration atomic.Int64
}

func (s *stopped) Running() time.Duration { return time.Since(s.began) }

func (s *stopped) Suspended(_, _ time.Duration) time.Duration {
	return time.Duration(s.duration.Load())
}

func watch(t *testing.T, test func(w *Watch, clock *leaseclock.Clock, pause func(time.Duration), reports *[]time.Duration)) {
	synctest.Test(t, func(*testing.T) {
		s := &stopped{began: time.Now()}
		clock := leaseclock.New(s)
		var reports []time.Duration
		w := New(time.Second, func(paused time.Duration) { reports = append(reports, paused) })
		w.Start(clock)
		defer w.Stop()
		test(w, clock, func(d time.Duration) { s.duration.Add(int64(d)) }, &reports)
	})
}

func TestWatch_ReportsPauses(t *testing.T) {
	watch(t, func(_ *Watch, _ *leaseclock.Clock, pause func(time.Duration), reports *[]time.Duration) {
		time.Sleep(time.Hour)
		pause(time.Second) // a late timer
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(*reports) > 0 {
			t.Errorf("it has run, and reports %v", *reports)
		}
		pause(19 * time.Second)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(*reports) != 1 || (*reports)[0].Round(time.Second) != 19*time.Second {
			t.Errorf("after 19s it reports %v", *reports)
		}
	})
}

// A caller learns of a pause before the goroutine does, and the pause is reported once.
func TestWatch_Since(t *testing.T) {
	watch(t, func(w *Watch, clock *leaseclock.Clock, pause func(time.Duration), reports *[]time.Duration) {
		time.Sleep(time.Minute + time.Millisecond)
		before := clock.Now()
		pause(5 * time.Second)
		time.Sleep(2 * time.Millisecond) // the clock looks at the suspended time each millisecond
		if got := w.Since(before).Round(time.Second); got != 5*time.Second {
			t.Errorf("%v, want 5s", got)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		pause(7 * time.Second)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := w.Since(before).Round(time.Second); got != 12*time.Second || len(*reports) != 2 {
			t.Errorf("%v and %v, want 12s and two", got, *reports)
		}
		if got := w.Since(clock.Now()); got != 0 {
			t.Errorf("since now: %v", got)
		}
		for range 2 * maxPauses {
			pause(2 * time.Second)
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		if len(w.pauses) != maxPauses {
			t.Errorf("%d pauses are kept", len(w.pauses))
		}
	})
}

func TestWatch_Stopped(t *testing.T) {
	watch(t, func(w *Watch, clock *leaseclock.Clock, pause func(time.Duration), reports *[]time.Duration) {
		w.Stop()
		w.Start(clock)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := w.Since(0); got != 0 || len(*reports) > 0 {
			t.Errorf("%v without looking at the time", got)
		}
	})
	synctest.Test(t, func(*testing.T) {
		w := New(time.Second, func(time.Duration) { t.Error("reports") })
		time.Sleep(time.Minute)
		synctest.Wait()
		if w.Since(0) != 0 {
			t.Error("it was not started")
		}
		w.Stop()
		w.Start(leaseclock.New(&stopped{began: time.Now()}))
		time.Sleep(time.Minute)
		synctest.Wait()
	})
}
