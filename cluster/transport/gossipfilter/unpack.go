package gossipfilter

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
)

// unpacker reads MessagePack as far as memberlist's messages use it, and keeps what it
// has read.
type unpacker struct {
	r     io.Reader
	seen  bytes.Buffer
	limit int // bytes
}

// packed is a value. Of those that are no numbers and no strings, only the presence counts.
type packed struct {
	number bool
	n      uint64
	text   string
	end    int // in seen
}

func newUnpacker(r io.Reader, limit int) *unpacker { return &unpacker{r: r, limit: limit} }

// take reads n bytes.
func (u *unpacker) take(n uint64) ([]byte, error) {
	if n > uint64(u.limit-u.seen.Len()) {
		return nil, fmt.Errorf("%w: more than %d bytes", ErrGossip, u.limit)
	}
	before := u.seen.Len()
	if _, err := io.CopyN(&u.seen, u.r, int64(n)); err != nil {
		return nil, err
	}
	return u.seen.Bytes()[before:], nil
}

func (u *unpacker) byte() (byte, error) {
	b, err := u.take(1)
	if err != nil {
		return 0, err
	}
	return b[0], nil
}

// number reads a big-endian number of 1, 2, 4 or 8 bytes.
func (u *unpacker) number(bytes int) (uint64, error) {
	b, err := u.take(uint64(bytes))
	if err != nil {
		return 0, err
	}
	var wide [8]byte
	copy(wide[8-bytes:], b)
	return binary.BigEndian.Uint64(wide[:]), nil
}

// fields reads a map with text as keys, and calls visit for each pair; nil: for none.
// memberlist's decoder would accept an array in its place, which no member sends.
func (u *unpacker) fields(visit func(name string, value packed) error) error {
	tag, err := u.byte()
	if err != nil {
		return err
	}
	n, ok, err := u.size(tag, 0x80, 0x0f, 0xde)
	if err != nil || !ok {
		return orGossip(err, "no map")
	}
	for range n {
		name, err := u.value(0)
		if err != nil {
			return err
		}
		value, err := u.value(0)
		value.end = u.seen.Len()
		if err == nil && visit != nil {
			err = visit(name.text, value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// rewrite replaces a number that has been read by a smaller one, in as many bytes.
func (u *unpacker) rewrite(old packed, n uint64) {
	for at := old.end - 1; old.n > 0; at-- {
		u.seen.Bytes()[at] = byte(n)
		old.n, n = old.n>>8, n>>8
	}
}

func orGossip(err error, text string) error {
	if err != nil {
		return err
	}
	return fmt.Errorf("%w: %s", ErrGossip, text)
}

// size returns the number of elements that tag announces: in its own bits if it is between
// fix and fix+mask, in 2 bytes if it is wide, in 4 if it is wide+1.
func (u *unpacker) size(tag, fix, mask, wide byte) (n uint64, ok bool, err error) {
	switch {
	case tag&^mask == fix:
		return uint64(tag & mask), true, nil
	case tag == wide:
		n, err = u.number(2)
	case tag == wide+1:
		n, err = u.number(4)
	default:
		return 0, false, nil
	}
	return n, true, err
}

// value reads any value.
func (u *unpacker) value(depth int) (packed, error) {
	tag, err := u.byte()
	if err != nil {
		return packed{}, err
	}
	switch {
	case tag < 0x80:
		return packed{number: true, n: uint64(tag)}, nil
	case tag >= 0xcc && tag <= 0xcf:
		n, err := u.number(1 << (tag - 0xcc))
		return packed{number: true, n: n}, err
	case tag >= 0xc4 && tag <= 0xc6:
		return u.text(u.number(1 << (tag - 0xc4)))
	case tag == 0xd9:
		return u.text(u.number(1))
	case tag == 0xc0, tag == 0xc2, tag == 0xc3, tag >= 0xe0: // nil, false, true, a small negative number
		return packed{}, nil
	case tag >= 0xd0 && tag <= 0xd3: // signed: one with the highest bit is negative
		bytes := 1 << (tag - 0xd0)
		n, err := u.number(bytes)
		return packed{number: n>>(8*bytes-1) == 0, n: n}, err
	}
	if n, ok, err := u.size(tag, 0xa0, 0x1f, 0xda); ok || err != nil {
		return u.text(n, err)
	}
	return packed{}, u.container(tag, depth)
}

func (u *unpacker) text(n uint64, err error) (packed, error) {
	if err != nil {
		return packed{}, err
	}
	b, err := u.take(n)
	return packed{text: string(b)}, err
}

// container skips an array or a map.
func (u *unpacker) container(tag byte, depth int) error {
	n, ok, err := u.size(tag, 0x90, 0x0f, 0xdc)
	if !ok && err == nil {
		n, ok, err = u.size(tag, 0x80, 0x0f, 0xde)
		n *= 2
	}
	if err != nil || !ok || depth >= maxPackDepth {
		return orGossip(err, fmt.Sprintf("value of type %#x", tag))
	}
	for range n {
		if _, err := u.value(depth + 1); err != nil {
			return err
		}
	}
	return nil
}
