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

// probeWatch is memberlist's transport, and passes packets to it. It records the last request
// for an indirect probe, because memberlist serves it from a goroutine that Shutdown does not
// wait for and that lasts up to probeTimeout.
type probeWatch struct {
	outgoing
	packets chan *memberlist.Packet
	stop    chan struct{}
	once    sync.Once
	stopped sync.WaitGroup

	mu       sync.Mutex
	indirect time.Time // guarded by mu
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
			if mayProbe(p.Body) {
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

// lastIndirect returns when an indirect probe was last requested; zero: never.
func (w *probeWatch) lastIndirect() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.indirect
}

// memberlist's types of messages, which are the first byte of each (net.go there).
const (
	indirectMessage = 1
	deadMessage     = 5
	compoundMessage = 7
	nackMessage     = 11
	checkedMessage  = 12 // a CRC-32, and a message
)

// mayProbe reports whether a packet may request an indirect probe. One that it cannot
// parse may.
func mayProbe(packet []byte) bool {
	if len(packet) >= 5 && packet[0] == checkedMessage {
		packet = packet[5:]
	}
	if len(packet) == 0 {
		return false
	}
	switch kind := packet[0]; {
	case kind == compoundMessage:
		return mayCompoundProbe(packet[1:])
	case kind != indirectMessage && kind <= deadMessage, kind == nackMessage:
		return false
	}
	return true
}

// mayCompoundProbe reads the number of parts, the length of each, and the parts.
func mayCompoundProbe(b []byte) bool {
	if len(b) == 0 || len(b) < 1+2*int(b[0]) {
		return true
	}
	lengths, rest := b[1:1+2*int(b[0])], b[1+2*int(b[0]):]
	for ; len(lengths) > 0; lengths = lengths[2:] {
		n := int(binary.BigEndian.Uint16(lengths))
		if n > len(rest) || mayProbe(rest[:n]) {
			return true
		}
		rest = rest[n:]
	}
	return false
}
