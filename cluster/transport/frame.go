package transport

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"

	"google.golang.org/protobuf/proto"
)

// A frame is the length of its body (4 bytes, big endian), the body's CRC-32C
// (4 bytes) and the body. A frame with an empty body is a keep-alive.
const frameHeader = 8

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendFrame appends body as a frame.
func appendFrame(buf, body []byte) []byte {
	start := len(buf)
	buf = append(buf, make([]byte, frameHeader)...)
	buf = append(buf, body...)
	seal(buf[start:])
	return buf
}

// appendMessage appends m as a frame.
func appendMessage(buf []byte, m proto.Message) ([]byte, error) {
	start := len(buf)
	buf, err := proto.MarshalOptions{}.MarshalAppend(append(buf, make([]byte, frameHeader)...), m)
	if err != nil {
		return buf[:start], err
	}
	seal(buf[start:])
	return buf, nil
}

// seal writes the header of a frame whose body is in place.
func seal(frame []byte) {
	body := frame[frameHeader:]
	binary.BigEndian.PutUint32(frame, uint32(len(body)))
	binary.BigEndian.PutUint32(frame[4:], crc32.Checksum(body, castagnoli))
}

// readFrame reads one frame's body, into buf if that is large enough. The limit
// is checked before memory is allocated, and memory is allocated as the body arrives: its
// length alone is worth nothing. io.EOF means that the connection ended
// between two frames.
func readFrame(r io.Reader, limit int, buf []byte) ([]byte, error) {
	return readFrameGrowing(r, limit, buf, nil)
}

// readFrameGrowing is readFrame, and calls grown before each allocation with its size; nil:
// ignored.
func readFrameGrowing(r io.Reader, limit int, buf []byte, grown func(int)) ([]byte, error) {
	var header [frameHeader]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(header[:])
	if uint64(n) > uint64(limit) {
		return nil, fmt.Errorf("%w: got a frame of %d bytes, want at most %d", ErrTooLarge, n, limit)
	}
	buf, err := readBody(r, int(n), buf, grown)
	if err != nil {
		return nil, err
	}
	if sum := crc32.Checksum(buf, castagnoli); sum != binary.BigEndian.Uint32(header[4:]) {
		return nil, fmt.Errorf("%w: checksum mismatch", ErrBadFrame)
	}
	return buf, nil
}

// readBody reads n bytes, into buf if that is large enough. It allocates no more than
// firstBody, or four times what has arrived.
func readBody(r io.Reader, n int, buf []byte, grown func(int)) ([]byte, error) {
	const firstBody, growth = 4 << 10, 4
	buf = buf[:0]
	if cap(buf) < min(n, firstBody) {
		buf = make([]byte, 0, min(n, firstBody))
	}
	for {
		got := len(buf)
		buf = buf[:min(n, cap(buf))]
		if _, err := io.ReadFull(r, buf[got:]); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		if len(buf) == n {
			return buf, nil
		}
		larger := min(n, growth*len(buf))
		if grown != nil {
			grown(larger)
		}
		buf = append(make([]byte, 0, larger), buf...)
	}
}
