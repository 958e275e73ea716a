package client

import (
	"testing"
	"testing/synctest"
	"time"
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
