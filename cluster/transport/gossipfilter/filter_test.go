package gossipfilter

import (
	"bytes"
	"encoding/binary"
	"io"
	"math"
	"net"
	"slices"
	"testing"

	"github.com/conclave-go/conclave/internal/hostile"
	"github.com/conclave-go/conclave/internal/wire"
)

func message(kind byte, body ...byte) []byte { return append([]byte{kind}, body...) }

func compound(messages ...[]byte) []byte {
	b := []byte{gossipCompound, byte(len(messages))}
	for _, m := range messages {
		b = binary.BigEndian.AppendUint16(b, uint16(len(m)))
	}
	return append(b, bytes.Join(messages, nil)...)
}

// testFilter is that of member 1, for what member 2 sends. dropped counts messages that it
// dropped alone.
func testFilter() (f *Filter, dropped *int) {
	dropped = new(int)
	return NewIncarnations(wire.ProcessName(1, 1)).Filter(wire.ProcessName(2, 1), func(error) { *dropped++ }), dropped
}

func TestFilter_Packet(t *testing.T) {
	alive := message(gossipAlive, hostile.Pack("Incarnation", 7, "Node", "a", "Addr", []byte{127, 0, 0, 1}, "Vsn", []byte{1, 5, 2})...)
	forged := message(gossipDead, hostile.Pack("Incarnation", uint32(math.MaxUint32), "Node", "a", "From", "b")...)
	for name, c := range map[string]struct {
		packet []byte
		ok     bool
	}{
		"ping":                  {message(gossipPing, hostile.Pack("SeqNo", 1)...), true},
		"alive":                 {alive, true},
		"compound":              {compound(alive, message(gossipSuspect, hostile.Pack("Incarnation", 7)...)), true},
		"with a checksum":       {append([]byte{gossipChecksum, 1, 2, 3, 4}, compound(alive)...), true},
		"empty":                 {nil, false},
		"forged death":          {forged, false},
		"forged, with checksum": {append([]byte{gossipChecksum, 1, 2, 3, 4}, forged...), false},
		"nested compound":       {compound(alive, compound(alive)), false},
		"suspicion of 64 bits":  {message(gossipSuspect, hostile.Pack("Incarnation", uint64(1<<40))...), false},
		"second incarnation":    {message(gossipDead, hostile.Pack("Incarnation", 1, "Incarnation", uint32(math.MaxUint32))...), false},
		"death as an array":     {message(gossipDead, 0x93, 0xce, 0xff, 0xff, 0xff, 0xff, 0xa1, 'a', 0xa1, 'b'), false},
		"signed incarnation":    {message(gossipDead, 0x81, 0xab, 'I', 'n', 'c', 'a', 'r', 'n', 'a', 't', 'i', 'o', 'n', 0xd1, 0x01, 0x00), true},
		"negative incarnation":  {message(gossipDead, 0x81, 0xab, 'I', 'n', 'c', 'a', 'r', 'n', 'a', 't', 'i', 'o', 'n', 0xd2, 0xff, 0, 0, 0), false},
		"no number":             {message(gossipDead, hostile.Pack("Incarnation", "x")...), false},
		"second name":           {message(gossipDead, hostile.Pack("Node", "a", "Node", "b")...), false},
		"truncated":             {alive[:len(alive)-1], false},
		"truncated compound":    {compound(alive)[:5], false},
		"user message":          {message(gossipUser, 1), false},
		"compressed":            {message(gossipCompressed, hostile.Pack("Algo", 0, "Buf", forged)...), false},
		"encrypted":             {message(gossipEncrypted, 1, 2, 3), false},
		"exchange of states":    {message(gossipPushPull, hostile.Pack("Nodes", 1)...), false},
		"label":                 {message(244, 1, 'x', gossipAck), false},
	} {
		t.Run(name, func(t *testing.T) {
			f, _ := testFilter()
			passed, err := f.Packet(c.packet)
			if (err == nil && bytes.Equal(passed, c.packet)) != c.ok || !c.ok && len(passed) > 0 {
				t.Errorf("got %q, %v, want accepted: %v", passed, err, c.ok)
			}
		})
	}
}

func TestStream_FirstMessageChecked(t *testing.T) {
	header := func(nodes, user any) []byte {
		return message(gossipPushPull, hostile.Pack("Nodes", nodes, "UserStateLen", user, "Join", true)...)
	}
	state := func(incarnation uint32, state int) []byte {
		return hostile.Pack("Name", "a", "Incarnation", incarnation, "State", state, "Meta", nil)
	}
	for name, c := range map[string]struct {
		in []byte
		ok bool
	}{
		"exchange":              {bytes.Join([][]byte{header(2, 0), state(1, 0), state(maxAhead, 0)}, nil), true},
		"ping":                  {message(gossipPing, hostile.Pack("SeqNo", 1)...), true},
		"forged header":         {header(1<<20, 0), false},
		"forged header, 64 b":   {header(uint64(1)<<63, 0), false},
		"too many states":       {append(header(maxGossipNodes+1, 0), bytes.Repeat(state(1, 0), maxGossipNodes+1)...), false},
		"user state":            {header(0, 20<<20), false},
		"two numbers of states": {append(message(gossipPushPull, hostile.Pack("Nodes", 1, "Nodes", 0)...), state(1, 0)...), false},
		"state of 64 bits":      {append(header(1, 0), hostile.Pack("Name", "a", "State", uint64(1<<32))...), false},
		"large value":           {append(header(1, 0), 0x81, 0xa1, 'a', 0xc6, 0xff, 0xff, 0xff, 0xff), false},
		"truncated":             {header(1, 0), false},
		"compressed":            {message(gossipCompressed, hostile.Pack("Algo", 0)...), false},
		"user message":          {message(gossipUser, hostile.Pack("UserMsgLen", 1<<24)...), false},
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := net.Pipe()
			defer ours.Close()
			go func() { _, _ = theirs.Write(c.in); theirs.Close() }()
			filter, _ := testFilter()
			got, err := io.ReadAll(filter.Stream(ours))
			if (err == nil) != c.ok || c.ok && !bytes.Equal(got, c.in) || !c.ok && len(got) > 0 {
				t.Errorf("got %d of %d bytes, %v, want accepted: %v", len(got), len(c.in), err, c.ok)
			}
		})
	}
}

// What is too far ahead is dropped alone.
func TestFilter_DropsAlone(t *testing.T) {
	about := func(kind byte, n int) []byte { return message(kind, hostile.Pack("Incarnation", n, "Node", "a")...) }
	good, ahead := about(gossipAlive, maxAhead), about(gossipDead, maxAhead+1)
	f, dropped := testFilter()
	for _, c := range []struct {
		name         string
		packet, want []byte
	}{
		{"alone", ahead, nil},
		{"with checksum", append([]byte{gossipChecksum, 1, 2, 3, 4}, ahead...), nil},
		{"all of a compound", compound(ahead, ahead), nil},
		{"in a compound", compound(good, ahead, about(gossipSuspect, 1)), compound(good, about(gossipSuspect, 1))},
	} {
		*dropped = 0
		if got, err := f.Packet(bytes.Clone(c.packet)); err != nil || !bytes.Equal(got, c.want) || *dropped == 0 {
			t.Errorf("%s: got %q, %v, %d dropped, want %q", c.name, got, err, *dropped, c.want)
		}
	}
	state := func(n int) []byte { return hostile.Pack("Name", "a", "Incarnation", n) }
	exchange := func(nodes any, states ...[]byte) []byte {
		return append(message(gossipPushPull, hostile.Pack("Nodes", nodes, "UserStateLen", 0)...), bytes.Join(states, nil)...)
	}
	for name, c := range map[string]struct{ in, want []byte }{
		"one of three": {exchange(3, state(1), state(maxAhead+1), state(2)), exchange(2, state(1), state(2))},
		"all":          {exchange(uint64(2), state(maxAhead+1), state(maxAhead+1)), exchange(uint64(0))},
		"one of 257": {
			exchange(257, append(slices.Repeat([][]byte{state(1)}, 256), state(maxAhead+1))...),
			exchange(256, slices.Repeat([][]byte{state(1)}, 256)...),
		},
		"one of 256": {
			exchange(256, append(slices.Repeat([][]byte{state(1)}, 255), state(maxAhead+1))...),
			exchange(255, slices.Repeat([][]byte{state(1)}, 255)...),
		},
	} {
		u := newUnpacker(bytes.NewReader(c.in), maxGossipState)
		*dropped = 0
		if err := f.first(u); err != nil || !bytes.Equal(u.seen.Bytes(), c.want) || *dropped == 0 {
			t.Errorf("%s: got %q, %v, %d dropped, want %q", name, u.seen.Bytes(), err, *dropped, c.want)
		}
	}
}

// FuzzGossip uses its input as a packet and as a stream: neither panics, no more than the
// limit is kept, and what passes would pass again.
func FuzzGossip(f *testing.F) {
	f.Add(compound(message(gossipDead, hostile.Pack("Incarnation", 1, "Node", "a", "From", "b")...)))
	f.Add(append(message(gossipPushPull, hostile.Pack("Nodes", 1, "UserStateLen", 0)...), hostile.Pack("Name", "a", "Incarnation", 3)...))
	f.Fuzz(func(t *testing.T, in []byte) {
		filter, dropped := testFilter()
		passed, err := filter.Packet(bytes.Clone(in))
		*dropped = 0
		if again, _ := filter.Packet(bytes.Clone(passed)); err == nil && len(passed) > 0 && (*dropped > 0 || !bytes.Equal(again, passed)) {
			t.Errorf("of %q passes %q, and of that %q", in, passed, again)
		}
		u := newUnpacker(bytes.NewReader(in), 1000)
		if err = filter.first(u); u.seen.Len() > 1000 || err == nil && u.seen.Len() == 0 {
			t.Errorf("%d bytes are kept, %v", u.seen.Len(), err)
		}
		again := newUnpacker(bytes.NewReader(u.seen.Bytes()), 1000)
		*dropped = 0
		if err == nil && (filter.first(again) != nil || *dropped > 0 || !bytes.Equal(again.seen.Bytes(), u.seen.Bytes())) {
			t.Errorf("of %q passes %q, and of that %q", in, u.seen.Bytes(), again.seen.Bytes())
		}
	})
}
