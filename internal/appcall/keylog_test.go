package appcall

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

type writerFunc func(line string)

func (f writerFunc) Write(p []byte) (int, error) { f(string(p)); return len(p), nil }

// A writer that panics or ends its goroutine loses one line, one that blocks those that do not fit.
func TestKeyLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines []string
		blocked := make(chan struct{})
		var c Calls
		w := c.KeyLog().To(writerFunc(func(line string) {
			switch line {
			case "panic":
				panic(line)
			case "goexit":
				runtime.Goexit()
			case "block":
				<-blocked
			}
			lines = append(lines, line)
		}))
		write := func(line string) {
			if n, err := w.Write([]byte(line)); n != len(line) || err != nil {
				t.Errorf("%q: %d, %v", line, n, err)
			}
		}
		for _, line := range []string{"panic", "goexit", "first", "block"} {
			write(line)
		}
		synctest.Wait()
		for range 2 * maxKeyLines {
			write("waits")
		}
		if left := c.Wait(time.Second); left != 1 {
			t.Errorf("%d calls under way", left)
		}
		close(blocked)
		c.Wait(time.Minute)
		if len(lines) != 2+maxKeyLines || lines[0] != "first" || lines[1] != "block" {
			t.Errorf("%d lines, which begin with %q", len(lines), lines[:min(3, len(lines))])
		}
		write("last")
		c.Wait(time.Minute)
		if last := lines[len(lines)-1]; last != "last" {
			t.Errorf("got %q", last)
		}
	})
}

func TestKeyLog_None(t *testing.T) {
	if w := new(Calls).KeyLog().To(nil); w != nil {
		t.Errorf("got %v, which package tls would write to", w)
	}
}
