package client

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/conclave-go/conclave/internal/wire"
)

func TestLossLog_Bounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l lossLog
		written := 0
		for range 1000 {
			if _, ok := l.allow(); ok {
				written++
			}
		}
		if written != lossLines {
			t.Errorf("%d lines in one period, want %d", written, lossLines)
		}
		time.Sleep(lossPeriod)
		if skipped, ok := l.allow(); !ok || skipped != 1000-lossLines {
			t.Errorf("the next line says that %d were skipped, want %d", skipped, 1000-lossLines)
		}
	})
}

// A lease, or a hold, ends by itself while the client stops: when Wait returns the loss is reported, each once.
func TestWait_LossUnderWay(t *testing.T) {
	for name, most := range map[string]time.Duration{"lease": 0, "hold": time.Second} {
		t.Run(name, func(t *testing.T) {
			bounded(t, func(t *testing.T, c *Client, g *fakeGroup) {
				reports, resume, lost, ended := make(chan struct{}), make(chan struct{}), 0, 0
				c.losses.report = func(string, uint64) { close(reports); <-resume; lost++ }
				c.cfg.LeaseEnded = func(wire.ID, error) { ended++ }
				lock := new(Lock)
				lock.Init(c, LockConfig{Lease: mustOpen(t, c, fakeTTL), Space: wire.Space_LOCK, Name: "x", MaxHold: most})
				mustAcquire(t, lock)
				g.hold() // so that nothing is renewed
				<-reports
				c.Stopped(nil, true)
				waited := make(chan struct{})
				go func() { defer close(waited); c.Wait() }()
				synctest.Wait()
				select {
				case <-waited:
					t.Error("Wait has returned before the loss was reported")
				default:
				}
				close(resume)
				<-waited
				if lost != 1 || ended != 1 || c.metrics.Lost.Load() != 1 {
					t.Errorf("%d losses and %d ends are reported, and %d are counted; want 1 of each", lost, ended, c.metrics.Lost.Load())
				}
			})
		})
	}
}
