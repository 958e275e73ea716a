// Package gossipfilter checks what a member sends to memberlist, before memberlist reads it. It is a seam, not an API:
// only packages transport and gossip use it.
//
// memberlist trusts its messages: an accusation with the largest incarnation cannot be
// refuted, as the number wraps to 0, and a header makes it allocate a table of a million
// nodes. So what a member sends is parsed here first, and what a member of a group never
// sends is dropped. The formats are those of memberlist v0.7 (net.go): a type, and maps in
// MessagePack.
package gossipfilter

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
)

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
	// maxGossipNodes and maxGossipState bound an exchange of states. A group has 64
	// members, of which some have dead processes that are not forgotten yet.
	maxGossipNodes = 4096
	maxGossipState = 4 << 20
	maxPackDepth   = 4
)

var (
	// ErrGossip is of a message that is dropped, with all that came with it.
	ErrGossip = errors.New("transport: gossip that no member sends")
	// errAhead is of one message. The others that came with it are passed on.
	errAhead = errors.New("transport: incarnation too far ahead")
)

// Filter checks what arrives on one connection.
type Filter struct {
	from         string // the name of the process that the connection has proven
	incarnations *Incarnations
	dropped      func(error) // is called with the error of what is dropped alone
}

// Filter returns a filter for a connection with a process, which is proven. dropped is called with the error of each
// message that is dropped alone.
func (i *Incarnations) Filter(process string, dropped func(error)) *Filter {
	return &Filter{from: process, incarnations: i, dropped: dropped}
}

// Packet returns what memberlist may see of a packet; nothing: none of it.
func (f *Filter) Packet(b []byte) ([]byte, error) {
	inner := b
	if len(b) >= 5 && b[0] == gossipChecksum {
		inner = b[5:] // memberlist compares it
	}
	messages, err := split(inner)
	if err != nil {
		return nil, err
	}
	passed := messages[:0]
	for _, m := range messages {
		switch err := f.message(m); {
		case errors.Is(err, errAhead):
			f.dropped(err)
		case err != nil:
			return nil, err
		default:
			passed = append(passed, m)
		}
	}
	switch len(passed) {
	case len(messages):
		return b, nil
	case 0:
		return nil, nil
	}
	return join(passed), nil
}

// split returns the messages of a packet.
func split(b []byte) (messages [][]byte, err error) {
	if len(b) == 0 || b[0] != gossipCompound {
		return [][]byte{b}, nil
	}
	if len(b) < 2 || len(b) < 2+2*int(b[1]) {
		return nil, fmt.Errorf("%w: truncated", ErrGossip)
	}
	lengths, rest := b[2:2+2*int(b[1])], b[2+2*int(b[1]):]
	for ; len(lengths) > 0; lengths = lengths[2:] {
		n := int(binary.BigEndian.Uint16(lengths))
		if n > len(rest) {
			return nil, fmt.Errorf("%w: truncated", ErrGossip)
		}
		messages = append(messages, rest[:n])
		rest = rest[n:]
	}
	return messages, nil
}

// join is the inverse of split, for some of its messages.
func join(messages [][]byte) []byte {
	b := []byte{gossipCompound, byte(len(messages))}
	for _, m := range messages {
		b = binary.BigEndian.AppendUint16(b, uint16(len(m)))
	}
	return append(b, bytes.Join(messages, nil)...)
}

func (f *Filter) message(b []byte) error {
	if len(b) == 0 {
		return fmt.Errorf("%w: empty", ErrGossip)
	}
	switch b[0] {
	case gossipPing, gossipIndirectPing, gossipAck, gossipNack:
		return nil
	case gossipSuspect, gossipDead, gossipAlive:
		return f.node(newUnpacker(bytes.NewReader(b[1:]), len(b)), "Node")
	}
	return fmt.Errorf("%w: message of type %d", ErrGossip, b[0])
}

// Stream returns a connection whose first message is checked before memberlist reads
// it. Each side sends one message.
func (f *Filter) Stream(c net.Conn) net.Conn { return &stream{Conn: c, filter: f} }

type stream struct {
	net.Conn
	filter *Filter
	reader io.Reader // nil: not checked yet
}

// Read blocks until the whole message is there.
func (s *stream) Read(b []byte) (int, error) {
	if s.reader == nil {
		in := bufio.NewReader(s.Conn)
		u := newUnpacker(in, maxGossipState)
		err := s.filter.first(u)
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

// first checks the first message of a stream, and leaves in u what memberlist may see.
func (f *Filter) first(u *unpacker) error {
	kind, err := u.byte()
	switch {
	case err != nil:
		return err
	case kind == gossipPing, kind == gossipAck, kind == gossipError:
		return u.fields(nil)
	case kind != gossipPushPull:
		return fmt.Errorf("%w: stream of type %d", ErrGossip, kind)
	}
	var nodes packed
	err = u.fields(func(name string, value packed) error {
		switch {
		case name == "Nodes" && (!value.number || value.n > maxGossipNodes || nodes.number):
			return fmt.Errorf("%w: %d states of nodes, want at most %d", ErrGossip, value.n, maxGossipNodes)
		case name == "Nodes":
			nodes = value
		case name == "UserStateLen" && (!value.number || value.n != 0):
			return fmt.Errorf("%w: %d bytes of user state", ErrGossip, value.n)
		}
		return nil
	})
	if err != nil {
		return err
	}
	passed := nodes.n
	for range nodes.n {
		begin := u.seen.Len()
		switch err := f.node(u, "Name"); {
		case errors.Is(err, errAhead):
			f.dropped(err)
			u.seen.Truncate(begin)
			passed--
		case err != nil:
			return err
		}
	}
	u.rewrite(nodes, passed)
	return nil
}

// node checks a message about a node, or its state in an exchange of states: a map, in which
// key has the name of the process.
func (f *Filter) node(u *unpacker, key string) error {
	var process, incarnation packed
	err := u.fields(func(name string, value packed) error {
		switch {
		case (name == "Incarnation" || name == "State") && (!value.number || value.n > math.MaxUint32),
			name == "Incarnation" && incarnation.number, name == key && process.text != "":
			return fmt.Errorf("%w: %s is invalid, or there twice", ErrGossip, name)
		case name == "Incarnation":
			incarnation = value
		case name == key:
			process = value
		}
		return nil
	})
	if err == nil && !f.incarnations.accept(f.from, process.text, incarnation.n) {
		err = fmt.Errorf("%w: %d of process %q", errAhead, incarnation.n, process.text)
	}
	return err
}
