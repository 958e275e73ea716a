package cluster

import (
	"context"
	"encoding/binary"
	"runtime/pprof"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// leash is memberlist's transport, and notes when another process has last asked this
// one for an indirect probe. memberlist answers such a request from a goroutine that
// nothing waits for, and that lasts up to probeTimeout.
type leash struct {
	memberlist.NodeAwareTransport
	packets chan *memberlist.Packet
	stop    chan struct{}
	once    sync.Once
	stopped sync.WaitGroup

	mu       sync.Mutex
	indirect time.Time // guarded by mu
}

// leashMargin is how much later than the request a probe's goroutine may begin.
const leashMargin = 20 * time.Millisecond

func newLeash(port memberlist.NodeAwareTransport, process string) *leash {
	l := &leash{NodeAwareTransport: port, packets: make(chan *memberlist.Packet), stop: make(chan struct{})}
	labels := pprof.Labels("conclave", process, "goroutine", "gossip packets")
	l.stopped.Go(func() { pprof.Do(context.Background(), labels, func(context.Context) { l.forward() }) })
	return l
}

func (l *leash) PacketCh() <-chan *memberlist.Packet { return l.packets }

// Shutdown returns when no further packet can reach memberlist.
func (l *leash) Shutdown() error {
	l.once.Do(func() { close(l.stop) })
	l.stopped.Wait()
	return l.NodeAwareTransport.Shutdown()
}

func (l *leash) forward() {
	for {
		select {
		case p := <-l.NodeAwareTransport.PacketCh():
			if mayProbe(p.Buf) {
				l.mu.Lock()
				l.indirect = time.Now()
				l.mu.Unlock()
			}
			select {
			case l.packets <- p:
			case <-l.stop:
				return
			}
		case <-l.stop:
			return
		}
	}
}

// lastIndirect returns when an indirect probe was last asked for; zero: never.
func (l *leash) lastIndirect() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.indirect
}

// memberlist's types of messages, which are the first byte of each (net.go there).
const (
	indirectMessage = 1
	deadMessage     = 5
	compoundMessage = 7
	nackMessage     = 11
	checkedMessage  = 12 // a CRC-32, and a message
)

// mayProbe reports whether memberlist may make an indirect probe because of a packet.
// What it cannot read may.
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
