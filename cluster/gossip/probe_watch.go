package gossip

import (
	"context"
	"encoding/binary"
	"runtime/pprof"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/conclave-go/conclave/cluster/transport"
)

// probeWatch is memberlist's transport, and passes packets to it. memberlist's Shutdown waits for no probe, so probeWatch
// records when one may be under way: from its own ping on, until the answer or for probeInterval, and from a request
// for an indirect probe on, for probeTimeout.
type probeWatch struct {
	outgoing
	packets chan *memberlist.Packet
	stop    chan struct{}
	once    sync.Once
	stopped sync.WaitGroup

	mu       sync.Mutex
	pinged   time.Time // guarded by mu; when the last ping was sent that has not been answered
	indirect time.Time // guarded by mu; when an indirect probe was last requested
}

// probeMargin bounds how much later than the request a probe's goroutine may begin.
const probeMargin = 20 * time.Millisecond

var _ memberlist.NodeAwareTransport = (*probeWatch)(nil)

func newProbeWatch(port *transport.Gossip, process string) *probeWatch {
	w := &probeWatch{outgoing: outgoing{port: port}, packets: make(chan *memberlist.Packet), stop: make(chan struct{})}
	labels := pprof.Labels("conclave", process, "goroutine", "gossip packets")
	w.stopped.Go(func() { pprof.Do(context.Background(), labels, func(context.Context) { w.forward() }) })
	return w
}

func (w *probeWatch) PacketCh() <-chan *memberlist.Packet { return w.packets }

// Shutdown returns when no further packet can reach memberlist.
func (w *probeWatch) Shutdown() error {
	w.once.Do(func() { close(w.stop) })
	w.stopped.Wait()
	return w.port.Shutdown()
}

func (w *probeWatch) forward() {
	for {
		select {
		case p := <-w.port.Packets():
			if mayContain(p.Body, indirectMessage) {
				w.mu.Lock()
				w.indirect = time.Now()
				w.mu.Unlock()
			}
			select {
			case w.packets <- &memberlist.Packet{Buf: p.Body, From: p.From, Timestamp: p.Received}:
			case <-w.stop:
				return
			}
		case <-w.stop:
			return
		}
	}
}

// WriteToAddress queues a packet. It never blocks; undeliverable packets are lost.
func (w *probeWatch) WriteToAddress(b []byte, addr memberlist.Address) (time.Time, error) {
	if mayContain(b, pingMessage) {
		w.mu.Lock()
		w.pinged = time.Now()
		w.mu.Unlock()
	}
	return w.outgoing.WriteToAddress(b, addr)
}

// answered notes that the last ping has been answered: memberlist makes one probe of its own at a time.
func (w *probeWatch) answered() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pinged = time.Time{}
}

// rest returns how much longer a probe may last, after Shutdown: a ping that memberlist sends from then on fails, and with
// it the probe.
func (w *probeWatch) rest(pace time.Duration) (d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.pinged.IsZero() {
		d = pace*probeInterval + probeMargin - time.Since(w.pinged)
	}
	if !w.indirect.IsZero() {
		d = max(d, pace*probeTimeout+probeMargin-time.Since(w.indirect))
	}
	return d
}

// memberlist's types of messages, which are the first byte of each (net.go there).
const (
	pingMessage     = 0
	indirectMessage = 1
	deadMessage     = 5
	compoundMessage = 7
	nackMessage     = 11
	checkedMessage  = 12 // a CRC-32, and a message
)

// mayContain reports whether a packet may contain a message of a type, pingMessage or indirectMessage. One that it cannot
// parse may.
func mayContain(packet []byte, kind byte) bool {
	if len(packet) >= 5 && packet[0] == checkedMessage {
		packet = packet[5:]
	}
	if len(packet) == 0 {
		return false
	}
	switch first := packet[0]; {
	case first == compoundMessage:
		return mayPartContain(packet[1:], kind)
	case first != kind && first <= deadMessage, first == nackMessage:
		return false
	}
	return true
}

// mayPartContain reads the number of parts, the length of each, and the parts.
func mayPartContain(b []byte, kind byte) bool {
	if len(b) == 0 || len(b) < 1+2*int(b[0]) {
		return true
	}
	lengths, rest := b[1:1+2*int(b[0])], b[1+2*int(b[0]):]
	for ; len(lengths) > 0; lengths = lengths[2:] {
		n := int(binary.BigEndian.Uint16(lengths))
		if n > len(rest) || mayContain(rest[:n], kind) {
			return true
		}
		rest = rest[n:]
	}
	return false
}
