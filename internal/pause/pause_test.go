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

func watch(t *testing.T, test func(w *Watch, clock *leaseclock.Clock, pause func(time.Duration), reports *[]Pauses)) {
	synctest.Test(t, func(*testing.T) {
		s := &stopped{began: time.Now()}
		clock := leaseclock.New(s)
		var reports []Pauses
		w := New(time.Second, func(p Pauses) { reports = append(reports, p) })
		w.Start(clock)
		defer w.Stop()
		test(w, clock, func(d time.Duration) { s.duration.Add(int64(d)) }, &reports)
	})
}

func TestWatch_ReportsPauses(t *testing.T) {
	watch(t, func(_ *Watch, _ *leaseclock.Clock, pause func(time.Duration), reports *[]Pauses) {
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
		if len(*reports) != 1 || (*reports)[0].Longest.Round(time.Second) != 19*time.Second {
			t.Errorf("after 19s it reports %v", *reports)
		}
	})
}

// A caller learns of a pause before the goroutine does, and the pause is reported once.
func TestWatch_Since(t *testing.T) {
	watch(t, func(w *Watch, clock *leaseclock.Clock, pause func(time.Duration), reports *[]Pauses) {
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

// Of many pauses in a row the first one is reported at once, and the others together, once a while and at the end.
func TestWatch_ReportsPausesInARowTogether(t *testing.T) {
	watch(t, func(w *Watch, _ *leaseclock.Clock, pause func(time.Duration), reports *[]Pauses) {
		for i := range 10 {
			pause(2 * time.Second)
			if i == 5 {
				pause(time.Second)
			}
			time.Sleep(time.Second)
			synctest.Wait()
		}
		w.Stop()
		var all Pauses
		for i, p := range *reports {
			if i == 0 && p.Count != 1 {
				t.Errorf("the first report is %+v", p)
			}
			all = Pauses{all.Count + p.Count, max(all.Longest, p.Longest), all.Total + p.Total}
		}
		if n := len(*reports); n < 2 || n > 4 || all.Count != 10 || all.Longest.Round(time.Second) != 3*time.Second || all.Total < 21*time.Second || all.Total > 24*time.Second {
			t.Errorf("%d reports: %+v", n, *reports)
		}
	})
}

// A patience of a few milliseconds is no reason to report what each process on a busy host sees.
func TestWatch_LeastPatience(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		s := &stopped{began: time.Now()}
		var reports []Pauses
		w := New(10*time.Millisecond, func(p Pauses) { reports = append(reports, p) })
		w.Start(leaseclock.New(s))
		defer w.Stop()
		for range 10 {
			s.duration.Add(int64(100 * time.Millisecond))
			time.Sleep(time.Second)
		}
		s.duration.Add(int64(time.Second))
		time.Sleep(time.Second)
		synctest.Wait()
		if len(reports) != 1 || reports[0].Count != 1 || reports[0].Total < 900*time.Millisecond {
			t.Errorf("%+v", reports)
		}
	})
}

func TestWatch_Stopped(t *testing.T) {
	watch(t, func(w *Watch, clock *leaseclock.Clock, pause func(time.Duration), reports *[]Pauses) {
		w.Stop()
		w.Start(clock)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := w.Since(0); got != 0 || len(*reports) > 0 {
			t.Errorf("%v without looking at the time", got)
		}
	})
	synctest.Test(t, func(*testing.T) {
		w := New(time.Second, func(Pauses) { t.Error("reports") })
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
