package attempts

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// A host may fail in a burst, then at a rate, and no other host waits for it.
func TestLimiter_FailuresOfOneHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Limiter
		fails := func(host string, n int) {
			t.Helper()
			for i := range n {
				if wait, _ := l.Begin(host); wait != 0 {
					t.Fatalf("attempt %d of %s has to wait for %v", i, host, wait)
				}
			}
		}
		refused := func(host string, want time.Duration, wantFirst bool) {
			t.Helper()
			if wait, first := l.Begin(host); wait != want || first != wantFirst {
				t.Fatalf("%s waits for %v, the first: %v; want %v, %v", host, wait, first, want, wantFirst)
			}
		}
		fails("a", Burst)
		refused("a", Every, true)
		time.Sleep(Every / 2)
		refused("a", Every/2, false)
		fails("b", Burst)
		time.Sleep(Every / 2)
		fails("a", 1)
		refused("a", Every, true)
		time.Sleep(1000 * Every)
		fails("a", Burst)
		refused("a", Every, true)
	})
}

// What succeeds does not count, however often it happens.
func TestLimiter_Succeeded(t *testing.T) {
	var l Limiter
	for range 3 * Burst {
		if wait, _ := l.Begin("a"); wait != 0 {
			t.Fatal("a success counts")
		}
		l.Succeeded("a")
	}
	l.Succeeded("unknown")
}

// Whatever the number of hosts, memory is bounded, and a host that goes on failing is not dropped.
func TestLimiter_ManyHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Limiter
		for range Burst {
			l.Begin("guesser")
		}
		for i := range 10 * maxHosts {
			l.Begin(fmt.Sprint(i))
			if i%1000 == 0 {
				if wait, _ := l.Begin("guesser"); wait == 0 {
					t.Fatal("the guesser has been dropped")
				}
			}
		}
		if len(l.hosts) != maxHosts || l.used.Len() != maxHosts {
			t.Errorf("%d hosts, %d in the list", len(l.hosts), l.used.Len())
		}
	})
}

func TestHost(t *testing.T) {
	for remote, want := range map[string]string{
		"10.0.0.7:5000": "10.0.0.7", "[::ffff:10.0.0.7]:5000": "10.0.0.7", "[::1]:5000": "::1", "[2001:db8::1:2:3]:5000": "2001:db8::/64",
		"[fe80::1%eth0]:5000": "fe80::/64", "@": "@", "": "", "host:5000": "host",
	} {
		if got := Host(remote); got != want {
			t.Errorf("%q: %q, want %q", remote, got, want)
		}
	}
}
