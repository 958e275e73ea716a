package consulapi

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A host with many queries takes its own places, and none of the others.
func TestWaits_ShareOfHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &waits{limit: 4, after: minWaited}
		ended := make(map[string]error)
		begin := func(name, remote string) *waiting {
			return w.begin(remote, func(cause error) { ended[name] = cause })
		}
		quiet := begin("quiet", "10.0.0.1:1")
		begin("first", "10.0.0.2:1")
		second := begin("second", "10.0.0.2:2")
		begin("third", "10.0.0.2:3")
		if begin("early", "10.0.0.2:4") != nil {
			t.Error("a query that has just begun was replaced")
		}
		time.Sleep(minWaited)
		if begin("fourth", "10.0.0.2:4") == nil || !errors.Is(ended["first"], errReplaced) || len(ended) != 1 {
			t.Errorf("replaced: %v", ended)
		}
		if begin("other", "10.0.0.3:1") == nil || !errors.Is(ended["second"], errReplaced) || len(ended) != 2 {
			t.Errorf("replaced: %v", ended)
		}
		w.leave(second) // it has none any more
		w.leave(quiet)
		if len(w.open) != 3 {
			t.Errorf("%d places are taken", len(w.open))
		}
	})
}

// A host that chooses its addresses within a network of IPv6 is one host.
func TestWaits_AddressesOfOneHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &waits{limit: 4, after: minWaited}
		for _, remote := range []string{"[2001:db8::1]:1", "[2001:db8::2]:1", "[2001:db8::3:4%eth0]:1", "10.0.0.1:1"} {
			w.begin(remote, func(error) {
				if remote != "[2001:db8::1]:1" {
					t.Errorf("%s was replaced", remote)
				}
			})
		}
		time.Sleep(minWaited)
		if w.begin("[::ffff:10.0.0.2]:1", nil) == nil {
			t.Error("another host is refused")
		}
	})
}

// Room is waited for in turns. The answer that has stalled for the longest is broken off, and one that
// moves is not.
func TestSending_StalledAnswerIsBrokenOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSending(100)
		moving, stalled := s.try(50), s.try(50)
		if s.try(1) != nil {
			t.Error("more than the limit")
		}
		moving.sent(func() { t.Error("an answer that moves is broken off") })
		stalled.sent(func() { go stalled.leave() }) // as its writer does
		began := time.Now()
		go func() {
			for range 30 {
				time.Sleep(maxStall / 10)
				moving.progress()
			}
		}()
		r, err := s.await(t.Context(), 50)
		if took := time.Since(began); err != nil || took != maxStall {
			t.Errorf("room after %v, %v", took, err)
		}
		r.leave()
		if r = s.try(50); r == nil || s.used != 100 {
			t.Errorf("%d bytes are used", s.used)
		}
		moving.sent(nil) // nothing can break it off
		r.sent(nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := s.await(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		moving.leave()
		r.leave()
		if all := s.try(1000); all == nil { // more than the limit, alone
			t.Error("no room for a single answer")
		}
	})
}
