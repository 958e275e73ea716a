package transport

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
)

// memberlist trusts its messages: an accusation with the largest incarnation cannot be
// refuted, as the number wraps to 0, and a header makes it allocate a table of a million
// nodes. So what a member sends is parsed here first, and what a member of a group never
// sends is dropped. The formats are those of memberlist v0.7 (net.go): a type, and maps in
// MessagePack.

// The types of memberlist's messages.
const (
	gossipPing = iota
	gossipIndirectPing
	gossipAck
	gossipSuspect
	gossipAlive
	gossipDead
	gossipPushPull
	gossipCompound
	gossipUser
	gossipCompressed
	gossipEncrypted
	gossipNack
	gossipChecksum
	gossipError
)

const (
	// maxAccused bounds the incarnation in a suspicion or a death. memberlist counts
	// refutations, a few in the life of a process.
	maxAccused = 1 << 30
	// maxAlive bounds the incarnation in a refutation: it exceeds that of the accusation.
	maxAlive = 1 << 31
	// maxGossipNodes and maxGossipState bound an exchange of states. A group has 64
	// members, of which some have dead processes that are not forgotten yet.
	maxGossipNodes = 4096
	maxGossipState = 4 << 20
	maxPackDepth   = 4
)

var errGossip = errors.New("transport: gossip that no member sends")

// checkPacket returns an error if memberlist must not see the packet.
func checkPacket(b []byte) error {
	if len(b) >= 5 && b[0] == gossipChecksum {
		b = b[5:] // memberlist compares it
	}
	if len(b) == 0 || b[0] != gossipCompound {
		return checkMessage(b)
	}
	if len(b) < 2 || len(b) < 2+2*int(b[1]) {
		return fmt.Errorf("%w: truncated", errGossip)
	}
	lengths, rest := b[2:2+2*int(b[1])], b[2+2*int(b[1]):]
	for ; len(lengths) > 0; lengths = lengths[2:] {
		n := int(binary.BigEndian.Uint16(lengths))
		if n > len(rest) {
			return fmt.Errorf("%w: truncated", errGossip)
		}
		if err := checkMessage(rest[:n]); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

func checkMessage(b []byte) error {
	if len(b) == 0 {
		return fmt.Errorf("%w: empty", errGossip)
	}
	switch b[0] {
	case gossipPing, gossipIndirectPing, gossipAck, gossipNack:
		return nil
	case gossipSuspect, gossipDead, gossipAlive:
		return newUnpacker(bytes.NewReader(b[1:]), len(b)).node(b[0] == gossipAlive)
	}
	return fmt.Errorf("%w: message of type %d", errGossip, b[0])
}

// gossipStream is a stream whose first message has been checked before memberlist reads
// it. Each side sends one message.
type gossipStream struct {
	net.Conn
	reader io.Reader // nil: not checked yet
}

// Read blocks until the whole message is there.
func (s *gossipStream) Read(b []byte) (int, error) {
	if s.reader == nil {
		in := bufio.NewReader(s.Conn)
		u := newUnpacker(in, maxGossipState)
		err := u.stream()
		if err == io.EOF && u.seen.Len() > 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			s.reader = failedReader{err}
		} else {
			s.reader = io.MultiReader(&u.seen, in)
		}
	}
	return s.reader.Read(b)
}

type failedReader struct{ err error }

func (r failedReader) Read([]byte) (int, error) { return 0, r.err }

// stream checks the first message of a stream.
func (u *unpacker) stream() error {
	kind, err := u.byte()
	switch {
	case err != nil:
		return err
	case kind == gossipPing, kind == gossipAck, kind == gossipError:
		return u.fields(nil)
	case kind != gossipPushPull:
		return fmt.Errorf("%w: stream of type %d", errGossip, kind)
	}
	nodes := uint64(0)
	err = u.fields(func(name string, value packed) error {
		switch {
		case name == "Nodes" && (!value.number || value.n > maxGossipNodes):
			return fmt.Errorf("%w: %d states of nodes, want at most %d", errGossip, value.n, maxGossipNodes)
		case name == "Nodes":
			nodes = value.n
		case name == "UserStateLen" && (!value.number || value.n != 0):
			return fmt.Errorf("%w: %d bytes of user state", errGossip, value.n)
		}
		return nil
	})
	for range nodes {
		if err != nil {
			break
		}
		err = u.node(true)
	}
	return err
}

// node checks a message about a node, or its state in an exchange of states: a map, whose
// incarnation is bounded.
func (u *unpacker) node(alive bool) error {
	incarnation := uint64(0)
	err := u.fields(func(name string, value packed) error {
		switch {
		case (name == "Incarnation" || name == "State") && !value.number:
			return fmt.Errorf("%w: %s is no number", errGossip, name)
		case name == "Incarnation":
			incarnation = max(incarnation, value.n)
		case name == "State":
			alive = alive && value.n == 0 // 0: alive
		}
		return nil
	})
	limit := uint64(maxAccused)
	if alive {
		limit = maxAlive
	}
	if err == nil && incarnation > limit {
		err = fmt.Errorf("%w: incarnation %d, want at most %d", errGossip, incarnation, limit)
	}
	return err
}
