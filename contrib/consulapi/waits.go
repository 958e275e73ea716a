package consulapi

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"
)

// minWaited is how long a blocking query waits at least before another one may take its place.
const minWaited = 2 * time.Second

// errReplaced ends the wait of a blocking query, which is then answered as after its time.
var errReplaced = errors.New("another query has taken the place")

// waits are the places of blocking queries. When all are taken, a new query takes the place of the
// oldest one of the host that has the most, the new one's included: that one is answered early, which a
// client of blocking queries expects at any time, and asks again. So queries of clients that have left
// keep no others out. That a client has disconnected is not always noticed: the server stops watching the
// connection at the first byte of a next request.
type waits struct {
	limit int
	after time.Duration // minWaited

	mu   sync.Mutex
	open []*waiting // guarded by mu; from the oldest
}

type waiting struct {
	host  string
	since time.Time
	end   func(cause error)
}

// begin takes a place until leave; end is called if another query takes it first. It returns nil if
// there is none.
func (w *waits) begin(remote string, end func(cause error)) *waiting {
	taken := &waiting{host: hostOf(remote), since: time.Now(), end: end}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.open) >= w.limit {
		victim := w.victim(taken)
		if victim < 0 {
			return nil
		}
		w.open[victim].end(errReplaced)
		w.remove(victim)
	}
	w.open = append(w.open, taken)
	return taken
}

// hostOf returns what the connections of one host share: its IP address; of IPv6 the network of 64
// bits, within which a host can choose any.
func hostOf(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return remote
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if ip = ip.Unmap().WithZone(""); ip.Is4() {
		return ip.String()
	}
	return netip.PrefixFrom(ip, 64).Masked().String()
}

// victim is called with mu held. It returns the number of the query that loses its place, or -1.
func (w *waits) victim(taken *waiting) int {
	most, count := taken.host, map[string]int{taken.host: 1}
	for _, o := range w.open {
		if count[o.host]++; count[o.host] > count[most] {
			most = o.host
		}
	}
	for i, o := range w.open {
		if o.host != most {
			continue
		}
		if time.Since(o.since) < w.after {
			return -1
		}
		return i
	}
	return -1
}

// leave releases a place, unless another query has taken it.
func (w *waits) leave(left *waiting) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, o := range w.open {
		if o == left {
			w.remove(i)
			return
		}
	}
}

// remove is called with mu held.
func (w *waits) remove(i int) {
	copy(w.open[i:], w.open[i+1:])
	w.open[len(w.open)-1] = nil
	w.open = w.open[:len(w.open)-1]
}
